"""What ran inside vLLM beside the simulator: the measured iteration times in, the same decisions and timeline out."""

from __future__ import annotations

__all__ = ["Replay", "replay_record", "requests_of"]

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.simulator_recorded import simulate_recorded
from tileq_engine.simulator_result import RawRun
from tileq_engine.vllm.recording import Record
from tileq_theory.iteration_time import IterationTime

_PS_PER_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """A record beside its replay.

    Parameters
    ----------
    iterations
        Iterations that were compared, and `of` those recorded.
    same
        How many of them, from the first one on, have the same members in the same order with the same tokens.
    otherwise
        Those that vLLM carried out otherwise than decided.
    instants_us, finish_us
        Largest difference of a decision's instant, and of a request's last token, microseconds.
    differences
        What is different, one line each; empty when nothing is.
    reason
        Why the rest of the record was not compared.
    raw
        The replay.
    """

    iterations: int
    of: int
    same: int
    otherwise: int
    instants_us: float
    finish_us: float
    differences: tuple[str, ...]
    reason: str
    raw: RawRun

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        names = ("iterations", "of", "otherwise", "instants_us", "finish_us", "reason")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        plain |= {"same": not self.differences, "same_from_the_first": self.same}
        return {**plain, "differences": [*self.differences[:5]]}


def requests_of(record: Record) -> Requests:
    """Return the requests of a record at the arrivals that the rules saw."""
    return _requests(record, np.maximum.accumulate(_column(record, "arrival_ps")))


def replay_record(record: Record, policy: Policy, config: EngineConfig, *, time: IterationTime | None = None) -> Replay:
    """Simulate the requests of `record` with iteration k taking what it took inside vLLM, and compare.

    A request is let in after the decision that did not know of it yet and before the one that could; whoever comes to
    an idle engine starts it. `time` is what the scheduler was told of the iteration time.
    """
    upto = len(record.iterations) if record.cut is None else record.cut
    while upto and record.iterations[upto - 1].closed_ps < 0:
        upto -= 1
    kept = record.iterations[:upto]
    starts, durations, arrivals = _timeline(record, upto)
    known = sum(1 for told in record.requests if told.after_ps < (kept[-1].decided_ps if kept else -1))
    asked = _requests(record, arrivals, known)
    members = sum(len(it.members) for it in kept)
    budget = record.token_budget or config.token_budget
    settings = config.with_(token_budget=budget, trace_limit=max(1, members), sample_limit=upto + 2, gap_mode="exact")
    own = policy if policy.token_budget in (None, budget) else replace(policy, token_budget=budget)
    raw = simulate_recorded(asked, own, durations, settings, time)
    found = [_members_differ(record, raw, upto), _instants_differ(starts, raw, upto)]
    finish = _finish_us(record, raw, upto)
    lines = [line for _, line in found if line]
    if record.cut is None and kept and kept[-1].alone and raw.stop_reason != "finished":
        lines.append(f"vLLM was done after iteration {upto - 1}, the replay is not")
    return Replay(
        iterations=upto,
        of=len(record.iterations),
        same=int(found[0][0]),
        otherwise=sum(it.otherwise for it in kept),
        instants_us=found[1][0],
        finish_us=finish,
        differences=tuple(lines),
        reason=record.reason if record.cut is not None else "",
        raw=raw,
    )


def _column(record: Record, name: str) -> Int[np.ndarray, "request"]:
    return np.array([getattr(told, name) for told in record.requests], dtype=np.int64)


def _requests(record: Record, arrival_ps: Int[np.ndarray, "request"], known: int | None = None) -> Requests:
    told = record.requests[:known]
    whole = ("prompt_tokens", "output_tokens", "predicted_output_tokens", "priority", "tenant")
    columns: dict[str, Any] = {name: [getattr(t, name) for t in told] for name in whole}
    return Requests.from_arrays(
        arrival_ps=arrival_ps[: len(told)],
        paying=np.array([t.paying for t in told], dtype=bool),
        tbt_limit_ps=[round(t.tbt_limit_s * PS_PER_S) for t in told],
        **columns,
    )


def _timeline(
    record: Record, upto: int
) -> tuple[Int[np.ndarray, "iteration"], Int[np.ndarray, "iteration"], Int[np.ndarray, "request"]]:
    """Return when each iteration starts in the replay, how long it takes, and when the requests arrive."""
    kept = record.iterations[:upto]
    decided = [it.decided_ps for it in kept]
    arrivals = np.maximum(_column(record, "arrival_ps"), _column(record, "after_ps") + 1)
    arrivals = np.maximum.accumulate(arrivals) if arrivals.size else arrivals
    groups = np.searchsorted(decided, arrivals)  # the decision that lets each in
    starts = np.array(decided, dtype=np.int64)
    last = np.array([it.closed_ps for it in kept[-1:]], dtype=np.int64)
    ends = np.concatenate([starts[1:], last])
    for k in range(upto):
        own = np.flatnonzero(groups == k)
        idle_from = -1 if k == 0 else kept[k - 1].closed_ps
        if (k == 0 or kept[k - 1].alone) and own.size and arrivals[own[0]] > idle_from:
            arrivals[own] = starts[k] = arrivals[own[0]]  # an idle engine starts with the first who comes
            if k:
                ends[k - 1] = idle_from
    return starts, ends - starts, arrivals


def _members_differ(record: Record, raw: RawRun, upto: int) -> tuple[float, str]:
    """Return how many batches are the same from the first on, and a line on the first that is not."""
    batches = raw.trace.batches()
    for k in range(upto):
        mine = [(i, tokens, int(tokens == 0)) for i, tokens in record.iterations[k].members]
        theirs = list(batches[k]) if k < len(batches) else []
        if mine != theirs:
            told = f"iteration {k} of {upto}: {len(mine)} members in vLLM, {len(theirs)} in the replay"
            if len(mine) == len(theirs):
                at = next(i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])
                told = f"iteration {k} of {upto}: member {at} is {mine[at]} in vLLM, {theirs[at]} in the replay"
            return float(k), told
    if len(batches) != upto:
        return float(upto), f"{upto} iterations in vLLM, {len(batches)} in the replay"
    return float(upto), ""


def _instants_differ(starts: Int[np.ndarray, "iteration"], raw: RawRun, upto: int) -> tuple[float, str]:
    found = raw.samples.start_ps[:upto]
    both = min(found.size, upto)
    if not both:
        return 0.0, ""
    off = np.abs(found[:both] - starts[:both])
    most = float(off.max()) / _PS_PER_US
    if most >= 1.0:
        return most, f"iteration {int(np.argmax(off))} starts {most:.1f} us apart"
    return most, ""


def last_output_ps(record: Record, upto: int | None = None) -> Float[np.ndarray, "request"]:
    """Return when the last output of each request was there, picoseconds; NaN where none was."""
    found = np.full(len(record.requests), np.nan)
    for it in record.iterations[:upto]:
        for i, _ in it.members:
            found[i] = it.landed_ps
    return found


def _finish_us(record: Record, raw: RawRun, upto: int) -> float:
    measured = last_output_ps(record, upto)[: len(raw.finish_ps)]
    ended = raw.finish_ps >= 0
    if not ended.any():
        return 0.0
    return float(np.nanmax(np.abs(raw.finish_ps[ended] - measured[ended]))) / _PS_PER_US
