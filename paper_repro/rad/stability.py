"""Theorems 1 and 2 as an experiment: RAD holds just below lambda*, and everything diverges just above it."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import in_system
from paper_repro.framework.verdict import Row, claim
from paper_repro.rad.setting import PAPER, TILE, TIME, capacity_per_s, draw

# label -> policy, settings, engine settings; budgets of one and of four tiles
_POLICIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "RAD": ("rad", {}, {"max_num_seqs": 256}),
    "Sarathi, 1 tile": ("sarathi", {}, {"token_budget": 128, "max_num_seqs": 127}),
    "Sarathi, 4 tiles": ("sarathi", {}, {"token_budget": 512, "max_num_seqs": 511}),
    "Orca, 4 tiles": ("orca", {"chunks": True}, {"token_budget": 512, "max_num_seqs": 511}),
    "SLAI, 4 tiles": ("slai", {}, {"token_budget": 512, "max_num_seqs": 128}),
    "vLLM v1, 4 tiles": ("vllm_v1", {}, {"token_budget": 512, "max_num_seqs": 512}),
    "vLLM v0": ("vllm_v0", {}, {"token_budget": 1024, "max_num_seqs": 256}),
    "FasterTransformer": ("static", {}, {"token_budget": 8192, "max_num_seqs": 128}),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a policy, load and replication."""
    return [
        {"policy": p, "load": load, "replication": r}
        for p in _POLICIES
        for load in settings["loads"]
        for r in range(settings["replications"])
    ]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Run one path until the last arrival; judge it, and hold the converse at every sample of it."""
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.run_raw import run_from_raw
    from tileq_engine.simulator import simulate

    rng = np.random.default_rng([seed, piece["replication"]])
    rate = piece["load"] * capacity_per_s()
    requests = draw(rate, settings["requests"], rng)
    end_s = float(requests.arrival_ps[-1]) * 1e-12
    name, params, own = _POLICIES[piece["policy"]]
    config = EngineConfig(convention="paper", stop_time_s=end_s, sample_limit=8192, **own)
    run = simulate(requests, policy(name, **params), TIME, config)
    verdict = run_from_raw(run).verdict()
    count = in_system(run, np.linspace(0.0, end_s, settings["points"]).tolist())
    found = {
        "stable": verdict.verdict,
        "slope_per_s": verdict.slope_per_s.estimate,
        "end_s": round(end_s, 3),
        "most": max(count),
        "last": count[-1],
        "converse": _converse(requests, run),
    }
    return found | ({"in_system": count} if piece["replication"] == 0 else {})  # one path of each is drawn


def _converse(requests: Any, run: Any) -> float:
    """Return the most of (tokens served)(t_Lin/b + t_nl)/now over the samples: Theorem 1 says at most 1."""
    start = run.samples.start_ps
    work = requests.prompt_tokens + requests.output_tokens
    arrived = np.concatenate([[0], np.cumsum(work)])[np.searchsorted(requests.arrival_ps, start, side="right")]
    served = arrived - run.samples.work_tokens
    late = start > start[-1] // 20
    token_s = float(TIME(TILE)) / TILE
    return float((served[late] * token_s / (start[late] * 1e-12)).max())


def _count(data: Data, policy: str, load: float, verdict: str) -> tuple[int, int]:
    seen = [r["stable"] for r in data.where(policy=policy, load=load)]
    return sum(s == verdict for s in seen), len(seen)


def rows(data: Data) -> list[Row]:
    """RAD below, everybody above, and the converse path by path."""
    found = []
    below = [x for x in data.settings["loads"] if x < 1]
    above = [x for x in data.settings["loads"] if x > 1]
    for load in below:
        seen = data.where(policy="RAD", load=load)
        bad, total = _count(data, "RAD", load, "unstable")
        good, _ = _count(data, "RAD", load, "stable")
        most = max(r["most"] for r in seen)
        last = [r["last"] for r in seen]
        rest = f"{bad} unstable, the rest undecided"
        ours = f"{good} of {total} paths stable, {rest}; at most {most} in system, {last} at the end"
        fine = bad == 0 < good and max(last) < 2000
        why = "undecided paths: so close to the boundary a verdict needs longer runs"
        found.append(claim(f"Theorem 2: RAD at {load} of lambda*", "stable", fine, ours, reason=why))
    for load in above:
        grown = []
        for name in _POLICIES:
            bad, total = _count(data, name, load, "unstable")
            good, _ = _count(data, name, load, "stable")
            grown.append((name, bad, good, total))
        fine = all(good == 0 for _, _, good, _ in grown) and all(bad > 0 for _, bad, _, _ in grown)
        ours = ", ".join(f"{name} {bad} of {total}" for name, bad, _, total in grown) + " paths unstable"
        held = sum(good for _, _, good, _ in grown)
        why = f"{held} paths seem stable, the rest is undecided: so small an excess shows in longer runs only"
        found.append(claim(f"Theorem 1: every policy at {load} of lambda*", "diverges", fine, ours, reason=why))
    worst = max((r["converse"], p["policy"]) for p, r in zip(data.pieces, data.results, strict=True))
    ours = f"at most {worst[0]:.6f} in {len(data.results)} paths ({worst[1]})"
    found.append(
        claim("Theorem 1, path by path: tokens served times 36.25 us over time", "at most 1", worst[0] <= 1, ours)
    )
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw requests in system over time below and above lambda*."""
    loads = sorted(data.settings["loads"])
    shown = (max(x for x in loads if x < 1), min(x for x in loads if x > 1))
    figure, panels = plt.subplots(1, 2, figsize=(10.0, 4.0), sharey=True)
    colours = ("#0b3954", "#c8553d", "#588b8b", "#8f6c9f", "#b08900", "#6b6b6b", "#c8553d", "#0b3954")
    dashes = ("-", "-", "--", "-.", (0, (5, 1, 1, 1)), (0, (8, 2)), ":", (0, (1, 3)))
    for axes, load in zip(panels, shown, strict=True):
        for name, colour, dash in zip(_POLICIES, colours, dashes, strict=True):
            r = data.one(policy=name, load=load, replication=0)
            times = np.linspace(0.0, r["end_s"], len(r["in_system"]))
            width = 2.4 if name == "RAD" else 1.2
            axes.plot(times, r["in_system"], color=colour, linestyle=dash, linewidth=width, label=name)
        axes.set(xlabel="time, s", yscale="symlog", title=f"{load} of λ*", ylim=(0, 1e6))
    panels[0].set_ylabel("requests in system")
    panels[0].legend(fontsize=8, ncols=2, loc="upper left")
    return figure


ITEM = Item(
    name="rad-stability",
    paper=PAPER,
    where="Theorems 1 and 2",
    claim="No policy is stable above lambda*; RAD is stable at every rate below it.",
    simulated="the engine on eq. (7), reference instance, Poisson arrivals, paths until the last arrival.",
    smoke={"loads": [0.9, 1.2], "requests": 3000, "replications": 2, "points": 41},
    full={"loads": [0.9, 0.95, 0.98, 1.05, 1.1], "requests": 40_000, "replications": 4, "points": 61},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
