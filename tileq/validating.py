"""`tileq validate`: the real executor around lambda*, predicted against measured."""

from __future__ import annotations

__all__ = ["POLICIES", "Validated", "validate"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tileq.traffic import Traffic, make_traffic
from tileq_theory.errors import InputError, positive, positive_int

if TYPE_CHECKING:
    from tileq_engine.executor.validation_case import Trial
    from tileq_engine.policy import Policy
    from tileq_engine.requests import Requests
    from tileq_profiling.calibration import Calibration
    from tileq_theory.capacity import TilePlan
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

POLICIES = ("rad_general", "sarathi", "slai")
DEFAULT_CLASS = "uniform(16,64):uniform(8,40)"
_SHARES = (0.15, 0.75, 0.10)  # of the budget: the profile, the runs, the profile again
_SMOKE = {"requests": 60, "budget": 20.0, "max_num_seqs": 8, "max_tokens": 48}


@dataclass(frozen=True, slots=True)
class Validated:
    """What was predicted, what was measured.

    Parameters
    ----------
    document
        Everything, as plain data: conditions, the fit, the plan, every case, and `summary`.
    complete
        Whether all cases were run; False when the budget or a signal cut them (run again with the same folder).
    """

    document: dict[str, Any]
    complete: bool

    @property
    def rate_over_best_edge(self) -> float | None:
        """lambda* over the largest measured edge, less 1; None when no edge was measured."""
        found: float | None = self.document["summary"]["rate_over_best_edge"]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq validate --json` prints."""
        return self.document

    def text(self) -> str:
        """Return the report as Markdown."""
        if self.document.get("executor") == "vllm":
            from tileq.validation_vllm_text import vllm_markdown

            return vllm_markdown(self.document)
        from tileq_engine.executor.validation_text import validation_markdown

        return validation_markdown(self.document)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the report with its plots as one HTML file."""
        from tileq.calibrating import writable
        from tileq.validation_page import validation_page, vllm_page

        where = writable(path)
        page = vllm_page if self.document.get("executor") == "vllm" else validation_page
        where.write_text(page(self.document), encoding="utf-8")
        return where


def validate(
    *,
    model: str | PathLike[str] | Any = "small",
    device: str = "cpu",
    dtype: str | None = None,
    threads: int = 1,
    calibration: str | PathLike[str] | None = None,
    classes: Sequence[str | RequestClass] | None = None,
    workload: str | Workload | None = None,
    trace: str | PathLike[str] | Any | None = None,
    policies: Sequence[str] = POLICIES,
    fractions: Sequence[float] | None = None,
    requests: int = 800,
    max_num_seqs: int = 64,
    token_budget: int | None = None,
    max_tokens: int | None = None,
    kv_tokens: int | None = None,
    preemption: str = "recompute",
    clock: str | None = None,
    budget: float = 600.0,
    folder: str | PathLike[str] | None = None,
    resume: bool = True,
    smoke: bool = False,
    seed: int = 0,
    live: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> Validated:
    """Run policies for real around lambda* and report predicted against measured; needs the extra `tileq[torch]`.

    Parameters
    ----------
    model, device, dtype, threads
        What runs: "small" (a Llama for a CPU), a folder with config.json, or a name of the catalogue with random
        weights; on "cpu" or "cuda".
    calibration
        A calibration file to judge; None: the executor is profiled and fitted first.
    classes, workload, trace
        The requests' lengths, as in `tileq.plan`; a mix of short ones when none is given.
    policies
        As `tileq simulate --policy` takes them; rad_general has the plan's own tiles.
    fractions
        Of lambda*; None: .7, .9, .97, 1.03, 1.1.
    requests
        Requests of one case.
    max_num_seqs, token_budget, max_tokens, kv_tokens, preemption
        The engine: residents, tokens of an iteration (the plan's), largest batch considered, KV cache.
    clock
        "steady" (the default: the machine's drift is taken out), "cpu", "busy" or "wall".
    budget
        Seconds of the whole call.
    folder
        Profile, journals and results of each case are kept there; an interrupted validation goes on from them.
    smoke
        A minute's work that shows that everything runs; its numbers mean nothing.
    say
        Called with a line now and then.

    Raises
    ------
    InputError
        torch is not installed, a model or requests that do not fit, a folder of another validation.
    """
    from tileq.validation_steps import Steps

    if smoke:
        requests, budget = int(_SMOKE["requests"]), min(budget, _SMOKE["budget"])
        max_num_seqs, max_tokens = int(_SMOKE["max_num_seqs"]), max_tokens or int(_SMOKE["max_tokens"])
    positive("budget", budget)
    _check(policies, fractions, token_budget, preemption, clock)
    traffic = _traffic(trace, workload, classes)
    steps = Steps(
        model=model,
        device=device,
        dtype=dtype,
        threads=threads,
        kv_tokens=kv_tokens,
        max_num_seqs=positive_int("max_num_seqs", max_num_seqs),
        max_tokens=max_tokens or 2 * max_num_seqs,
        clock=clock or "steady",
        folder=None if folder is None else Path(folder),
        resume=resume,
        seed=seed,
        say=say or _quietly,
    )
    lengths = _lengths(traffic, positive_int("requests", requests), seed, steps.longest, steps.kv_tokens)
    steps.open({"requests": requests, "traffic": traffic.label, "policies": list(policies), "smoke": smoke})
    fitted = steps.given(calibration) if calibration is not None else steps.fitted(lengths, _SHARES[0] * budget)
    plan = plan_of(fitted.time, lengths, steps, token_budget)
    trial = steps.trial(lengths, plan, fitted.time, preemption)
    chosen = policies_of(policies, plan)
    documents, complete = steps.cases(trial, chosen, fractions, _SHARES[1] * budget, live)
    return _judged(steps, fitted, plan, trial, traffic, documents, complete, _SHARES[2] * budget)


def _quietly(line: str) -> None:
    """Say nothing."""


def _traffic(trace: Any, workload: Any, classes: Any) -> Traffic:
    if trace is None and workload is None and not classes:
        return make_traffic(classes=[DEFAULT_CLASS])
    return make_traffic(trace, workload, classes)


def _check(
    policies: Sequence[str],
    fractions: Sequence[float] | None,
    token_budget: int | None,
    preemption: str,
    clock: str | None,
) -> None:
    """Refuse, before minutes go into a profile, what the steps after it would refuse."""
    from tileq.policy_text import parse_policy
    from tileq_engine.config import EngineConfig
    from tileq_engine.executor.clocks import CLOCKS

    if len(set(policies)) != len(policies) or not policies:
        raise InputError(f"policies are {', '.join(policies) or 'none'}; expected at least one, each once")
    for text in policies:
        name, _, settings = text.partition(":")
        if name.strip().replace("-", "_") != "rad_general" or "levels" in settings:  # else its tiles are the plan's
            parse_policy(text)
    for fraction in fractions or ():
        positive("fraction of lambda*", fraction)
    if token_budget is not None:
        positive_int("token_budget", token_budget)
    EngineConfig(preemption=cast(Any, preemption))
    if clock is not None and clock not in CLOCKS:
        raise InputError(f"clock is {clock!r}; expected one of {', '.join(CLOCKS)}")


def _lengths(traffic: Traffic, count: int, seed: int, longest: int | None, kv_tokens: int | None = None) -> Requests:
    """Return the requests of every case, all at time 0."""
    from tileq_engine.executor.validation_case import check_lengths
    from tileq_engine.requests import Requests

    drawn = Requests.from_workload(traffic.workload, count, seed, rate=1.0)
    largest = int((drawn.prompt_tokens + drawn.output_tokens).max())
    if longest is not None and largest > longest:
        raise InputError(
            f"the {traffic.label} has requests of {largest} tokens; the model has positions for {longest}. "
            "Give a model with more, or shorter requests (--class)"
        )
    if kv_tokens is not None and largest > kv_tokens:
        raise InputError(
            f"the {traffic.label} has requests of {largest} tokens; the KV cache holds {kv_tokens}. "
            "Give a larger one (--kv-tokens), or shorter requests (--class)"
        )
    return check_lengths(drawn)


def workload_of(lengths: Requests) -> Workload:
    """Return the workload whose requests have exactly these lengths."""
    from tileq_theory.lengths import Pairs
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

    law = Pairs(lengths.prompt_tokens, lengths.output_tokens)
    return Workload((RequestClass("requests", law),))


def plan_of(time: Any, lengths: Requests, steps: Any, token_budget: int | None) -> TilePlan:
    """Return the tile plan of these requests under a validation's limits."""
    from tileq_theory.capacity import Limits, tile_plan

    limits = Limits(
        max_batch_tokens=token_budget or steps.max_tokens,
        max_num_seqs=steps.max_num_seqs,
        kv_tokens=float(steps.kv_tokens),
    )
    return tile_plan(time, workload_of(lengths), limits)


def policies_of(names: Sequence[str], plan: TilePlan) -> dict[str, Policy]:
    """Return the policies by the text that names them; generalised RAD has the plan's tiles."""
    from tileq.policy_text import parse_policy

    of_plan: Any = SimpleNamespace(tile=plan)
    found: dict[str, Policy] = {}
    for text in names:
        found[text] = parse_policy(text, plan=of_plan)
    return found


def _judged(
    steps: Any,
    fitted: Any,
    plan: TilePlan,
    trial: Trial,
    traffic: Traffic,
    documents: list[dict[str, Any]],
    complete: bool,
    left_s: float,
) -> Validated:
    from tileq.plain import plain
    from tileq_engine.executor.validation import summary

    def rate(time: Any) -> float | None:
        return None if time is None else plan_of(time, trial.lengths, steps, None).capacity.rate_per_s

    after = steps.after(trial.lengths, left_s) if complete and fitted.calibration is not None else None
    document: dict[str, Any] = plain(
        {
            "schema_version": 1,
            "title": f"Validation of lambda* on {steps.backend.describe()['device']}",
            "conditions": steps.conditions(trial, traffic.label),
            "complete": complete,
            "fit": {**fitted.time.to_dict(), "points": fitted.points, "median_error": fitted.median_error},
            "plan": {
                "rate_per_s": plan.capacity.rate_per_s,
                "budget_rate_per_s": plan.budget_rate_per_s,
                "attainable_rate_per_s": plan.attainable_rate_per_s,
                "binding": plan.capacity.binding,
                "token_budget": trial.config.token_budget,
                "max_num_seqs": trial.config.max_num_seqs,
                "tile_ratio": plan.to_dict().get("tile_ratio"),
            },
            "cases": documents,
            "summary": summary(
                documents,
                rate_per_s=plan.capacity.rate_per_s,
                raw_rate_per_s=rate(fitted.raw_time),
                after_rate_per_s=rate(after),
            ),
            "warnings": [*traffic.warnings, *fitted.warnings],
        }
    )
    steps.finish(document)
    return Validated(document, complete)


def calibration_of(path: str | PathLike[str]) -> Calibration:
    """Return the calibration of a file."""
    from tileq_profiling.calibration import load_calibration

    return load_calibration(Path(path))
