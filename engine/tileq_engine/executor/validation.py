r"""Theory against the real executor: lambda* of a fitted iteration time, then real runs around it.

Every policy is run saturated (all requests at once), which measures the edge of its stability region as the rate at
which a busy server finishes requests, and at fractions of lambda* until there is a verdict. All cases have the same
requests; lambda* is that of their very lengths. Whether a load is stable is judged twice: by the run's own verdict, and
by the offered rate over the measured edge, which a machine whose speed wanders does not blur.
"""

from __future__ import annotations

__all__ = ["FRACTIONS", "run_cases", "summary"]

import json
import time as clock_time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from tileq_engine.executor.stopping import StopSwitch
from tileq_engine.executor.validation_case import Case, Trial, run_case
from tileq_engine.policy import Policy
from tileq_theory.errors import positive

FRACTIONS = (0.7, 0.9, 0.97, 1.03, 1.1)
_NEAR = 0.05  # simulated figures closer than this are a tie: noise decides their order
_ORDERED = (("saturated", "saturated_per_s"), ("ttft_s", "mean"), ("tbt_s", "mean"), ("tbt_s", "p99"))


def cases_of(policies: Mapping[str, Policy], fractions: Sequence[float]) -> list[Case]:
    """Return the cases: the edges first, then the loads that are decided soonest; those near the edge get the rest."""
    loads = sorted(fractions, key=lambda f: (-abs(f - 1), f))
    return [Case(n, p, None) for n, p in policies.items()] + [Case(n, p, f) for f in loads for n, p in policies.items()]


def run_cases(
    trial: Trial,
    policies: Mapping[str, Policy],
    *,
    fractions: Sequence[float] = FRACTIONS,
    budget_s: float = 300.0,
    on_case: Callable[[dict[str, Any], int, int], None] | None = None,
    live: bool | None = False,
    resume: bool = True,
) -> tuple[list[dict[str, Any]], bool]:
    """Run the cases within `budget_s` real seconds; return their documents and whether all of them were run.

    What is left of the time is shared evenly by the cases that are left. With a folder, a finished case is taken from
    there, and one that was cut by a kill or a signal goes on where it was.
    """
    deadline = clock_time.monotonic() + positive("budget_s", budget_s)
    cases = cases_of(policies, [positive("fraction", f) for f in fractions])
    documents = list[dict[str, Any]]()
    switch = StopSwitch("save")
    with switch:
        for done, case in enumerate(cases):
            document = _kept(trial, case) if resume else None
            if document is None:
                left = (deadline - clock_time.monotonic()) / (len(cases) - done)
                if switch() or left <= 0:
                    return documents, False
                _, document = run_case(trial, case, budget_s=left, switch=switch, live=live, resume=resume)
                if switch():  # its journal is kept: it goes on from there
                    return documents, False
                _keep(trial, case, document)
            documents.append(document)
            if on_case is not None:
                on_case(document, done + 1, len(cases))
    return documents, True


def _kept(trial: Trial, case: Case) -> dict[str, Any] | None:
    if trial.folder is None or not (path := trial.folder / f"{case.key}.json").is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _keep(trial: Trial, case: Case, document: dict[str, Any]) -> None:
    if trial.folder is None:
        return
    path = trial.folder / f"{case.key}.json"
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def summary(
    documents: Sequence[Mapping[str, Any]],
    *,
    rate_per_s: float,
    raw_rate_per_s: float | None = None,
    after_rate_per_s: float | None = None,
) -> dict[str, Any]:
    """Return what the cases say together: edges against lambda*, verdicts against loads, the policies' order.

    Parameters
    ----------
    rate_per_s
        lambda* from the profile, at the probe's reference speed.
    raw_rate_per_s
        The same from the profile's times as they were measured; None: not known.
    after_rate_per_s
        lambda* from the profile taken after the runs.
    """
    edges = {d["policy"]: _edge(d, rate_per_s, raw_rate_per_s, after_rate_per_s) for d in documents if _saturated(d)}
    known = [e["measured_per_s"] for e in edges.values() if e["measured_per_s"]]
    best = max(known, default=None)
    return {
        "rate_per_s": rate_per_s,
        "raw_rate_per_s": raw_rate_per_s,
        "after_rate_per_s": after_rate_per_s,
        "edges": edges,
        "best_edge_per_s": best,
        "rate_over_best_edge": None if best is None else rate_per_s / best - 1,
        "loads": [_load(d, edges) for d in documents if not _saturated(d)],
        "order": _orders(documents),
        "iteration_error": {
            name: _middle([abs(d["iteration_error"][name]) for d in documents]) for name in ("bias", "median", "p90")
        },
        "replays_same": all(d["replay"]["same"] for d in documents),
        "overhead_share": _middle([d["overhead_share"] for d in documents if _saturated(d)]),
        "decide_median_us": _middle([d["time_shares"]["decide_median_us"] for d in documents]),
    }


def _saturated(document: Mapping[str, Any]) -> bool:
    return document["fraction"] is None


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _edge(
    d: Mapping[str, Any], rate: float, raw_rate: float | None, after_rate: float | None
) -> dict[str, float | None]:
    def over(predicted: float | None, measured: float | None) -> float | None:
        return predicted / measured - 1 if predicted and measured else None

    measured, raw, simulated = (d.get(f"saturated_{k}per_s") for k in ("", "raw_", "simulated_"))
    return {
        "measured_per_s": measured,
        "halfwidth_per_s": d.get("saturated_halfwidth_per_s"),
        "raw_per_s": raw,
        "simulated_per_s": simulated,
        "rate_over_measured": over(rate, measured),
        "simulated_over_measured": over(simulated, measured),
        "raw_rate_over_raw": over(raw_rate, raw),
        "after_rate_over_measured": over(after_rate, measured),
    }


def _load(d: Mapping[str, Any], edges: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    edge = edges.get(d["policy"], {}).get("measured_per_s")
    load = None if not edge else d["rate_per_s"] / edge
    expected = None if load is None else ("stable" if load < 1 else "unstable")
    found = {
        "policy": d["policy"],
        "fraction": d["fraction"],
        "load": load,
        "expected": expected,
        "verdict": d["measured"]["verdict"],
        "simulated_verdict": d["simulated"]["verdict"],
    }
    for name in ("ttft_s", "tbt_s"):
        for what in ("mean", "p50", "p99"):
            ours, theirs = d["measured"][name][what], d["simulated"][name][what]
            found[f"{name[:4].rstrip('_')}_{what}_s"] = ours
            found[f"{name[:4].rstrip('_')}_{what}_simulated_over_measured"] = theirs / ours - 1 if ours else None
    return found


def _orders(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, load by load and figure by figure, whether policies stand in the order in which the simulator has them.

    A pair counts where the simulator tells them apart by more than 5 %.
    """
    found = []
    for fraction in sorted({d["fraction"] for d in documents}, key=lambda f: (f is not None, f or 0)):
        group = {d["policy"]: d for d in documents if d["fraction"] == fraction}
        for kind, name in _ORDERED:
            if (kind == "saturated") != (fraction is None):
                continue
            ours = {p: _figure(d, "measured", kind, name) for p, d in group.items()}
            theirs = {p: _figure(d, "simulated", kind, name) for p, d in group.items()}
            told = [p for p in group if ours[p] and theirs[p]]
            apart = [(a, b) for a, b in combinations(told, 2) if abs(theirs[a] / theirs[b] - 1) > _NEAR]
            same = [(a, b) for a, b in apart if (ours[a] < ours[b]) == (theirs[a] < theirs[b])]
            found.append(
                {
                    "fraction": fraction,
                    "figure": "saturated rate" if kind == "saturated" else f"{kind[:4].rstrip('_')} {name}",
                    "measured": sorted(told, key=lambda p: ours[p]),
                    "simulated": sorted(told, key=lambda p: theirs[p]),
                    "pairs_apart": len(apart),
                    "pairs_in_order": len(same),
                }
            )
    return found


def _figure(d: Mapping[str, Any], side: str, kind: str, name: str) -> Any:
    if kind == "saturated":
        return d.get("saturated_per_s" if side == "measured" else "saturated_simulated_per_s")
    return d[side][kind][name]
