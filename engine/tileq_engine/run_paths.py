r"""Paths over time rebuilt from the request table: number in system, waiting, running, and work left.

They need nothing but per-request times, so they are the same for every executor:

    N(t) = #{arrival <= t} - #{finish <= t}                            accepted requests only
    W(t) = sum over arrived i of (P_i + D_i) - tokens of i done by t   work in system, tokens

with prefill work P_i spread evenly over [admit, prefill end] and decode work D_i (O - 1 or O by the token convention)
over [prefill end, finish]; what a request still running had done by the end is `tokens_done`. Recomputed tokens are not
work: only progress counts. The error of the even spread is at most the work of the requests in one phase at t.
"""

from __future__ import annotations

__all__ = ["cumulative_at", "queue_path", "run_verdict", "time_average", "work_path"]

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.run import NEVER_FITS, PS_PER_S, REJECTED
from tileq_engine.verdict import GRID_POINTS, StabilityVerdict, stability_verdict
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.run import Run


def cumulative_at(moments_ps: Int[np.ndarray, "n"], grid_ps: Int[np.ndarray, "t"]) -> Int[np.ndarray, "t"]:
    """Return how many moments (>= 0; -1 means never) are at or before each grid point."""
    return np.searchsorted(np.sort(moments_ps[moments_ps >= 0]), grid_ps, side="right").astype(np.int64)


_MOMENTS = ("arrival_ps", "admit_ps", "prefill_end_ps", "finish_ps")
_LENGTHS = ("prompt_tokens", "output_tokens", "tokens_done")


def _accepted(run: Run, *names: str) -> dict[str, Int[np.ndarray, "n"]]:
    """Return the named columns of the accepted requests."""
    keep = run.accepted
    return {name: run.requests[name] if bool(keep.all()) else run.requests[name][keep] for name in names}


def queue_path(run: Run, grid_ps: Int[np.ndarray, "t"]) -> dict[str, Int[np.ndarray, "t"]]:
    """Return `in_system`, `waiting` (not yet admitted for the first time) and `running` at each moment of the grid."""
    table = _accepted(run, *_MOMENTS)
    grid = np.asarray(grid_ps, dtype=np.int64)
    arrived, admitted, left = (cumulative_at(table[c], grid) for c in ("arrival_ps", "admit_ps", "finish_ps"))
    return {"in_system": arrived - left, "waiting": arrived - admitted, "running": admitted - left}


def time_average(begin_ps: Int[np.ndarray, "n"], end_ps: Int[np.ndarray, "n"], window_ps: tuple[int, int]) -> float:
    """Return the time-average number of the intervals [begin, end) inside the window (exact but for the division)."""
    low, high = window_ps
    if high <= low:
        return float("nan")
    inside = np.maximum(np.minimum(end_ps, high) - np.maximum(begin_ps, low), 0)
    whole, rest = inside >> 32, inside & 0xFFFFFFFF
    return ((int(whole.sum()) << 32) + int(rest.sum())) / (high - low)


def _ramps(
    begin_s: Float[np.ndarray, "n"],
    end_s: Float[np.ndarray, "n"],
    amount: Float[np.ndarray, "n"],
    grid_s: Float[np.ndarray, "t"],
) -> Float[np.ndarray, "t"]:
    """Return the sum over i of amount_i * clip((t - begin_i)/(end_i - begin_i), 0, 1) at each t."""
    length = np.maximum(end_s - begin_s, 1e-12)
    slope = amount / length
    total = np.zeros(grid_s.size)
    for moment, sign in ((begin_s, 1.0), (begin_s + length, -1.0)):
        order = np.argsort(moment, kind="stable")
        slopes = np.concatenate([[0.0], np.cumsum(slope[order])])
        offsets = np.concatenate([[0.0], np.cumsum(slope[order] * moment[order])])
        place = np.searchsorted(moment[order], grid_s, side="right")
        total += sign * (slopes[place] * grid_s - offsets[place])
    return total


def work_path(run: Run, grid_ps: Int[np.ndarray, "t"]) -> Float[np.ndarray, "t"]:
    """Return the work in system (tokens left of accepted requests) at each moment of the grid."""
    table = _accepted(run, *_MOMENTS, *_LENGTHS)
    grid = np.asarray(grid_ps, dtype=np.int64)
    end = run.info.end_ps
    prompt, output = table["prompt_tokens"].astype(float), table["output_tokens"].astype(float)
    late = 1.0 if run.info.token_convention == "engine" else 0.0  # the last chunk emits the first token
    decode = np.maximum(output - late, 0.0)
    finished = table["finish_ps"] >= 0
    # an executor that does not report the end of a prefill: all of the request is done when it finishes
    prefill_end = np.where(table["prefill_end_ps"] >= 0, table["prefill_end_ps"], table["finish_ps"])
    prefilled = prefill_end >= 0
    done = np.where(finished, decode, np.clip(table["tokens_done"] - late, 0.0, decode))

    arrived_work = np.concatenate([[0.0], np.cumsum(prompt + decode)])
    arrived = arrived_work[np.searchsorted(table["arrival_ps"], grid, side="right")]
    served = np.zeros(grid.size)
    start = np.where(table["admit_ps"] >= 0, table["admit_ps"], table["arrival_ps"])
    last = np.where(finished, table["finish_ps"], max(end, 0))
    grid_s = grid / PS_PER_S
    for mask, begin, finish, amount in (
        (prefilled, start, prefill_end, prompt),
        (prefilled, prefill_end, last, done),
    ):
        served += _ramps(begin[mask] / PS_PER_S, finish[mask] / PS_PER_S, amount[mask], grid_s)
    return np.maximum(arrived - served, 0.0)


def _first_stay_s(run: Run) -> float:
    """Return how long the work of the first tenth of the requests stays, from admission to the end, seconds.

    The median over tokens: half of the work is of requests that stay longer. Among lengths of heavy tail the long ones
    fill the system, however few they are. Waiting for admission is left out: where a policy carries a sixth of what
    arrives, even the first tenth waits for most of the run, and that is backlog, not filling. Requests that were never
    served do not count. A median that the end of the run cuts off is not known: inf.
    """
    table = _accepted(run, "admit_ps", "finish_ps", "prompt_tokens", "output_tokens")
    first = slice(max(table["admit_ps"].size // 10, 1))
    admit, finish = table["admit_ps"][first], table["finish_ps"][first]
    served = admit >= 0
    if not served.any():
        return 0.0
    stays = (np.where(finish >= 0, finish, run.info.end_ps) - admit)[served]
    order = np.argsort(stays)
    work = np.cumsum((table["prompt_tokens"] + table["output_tokens"])[first][served][order])
    median = order[np.searchsorted(work, work[-1] / 2)]
    return int(stays[median]) / PS_PER_S if finish[served][median] >= 0 else math.inf


def run_verdict(run: Run, **options: Any) -> StabilityVerdict:
    """Judge the second half of the time in which requests arrived; options as in `verdict.stability_verdict`.

    The half ends with the last arrival (or with the run, if that is earlier): what follows is draining, not stability.
    Requests that no iteration of the policy can hold make the verdict "unstable" (the published whole-prompt policies
    would wait for them for ever); other rejections leave a verdict on the accepted work.
    """
    if not run.count:
        raise InputError("the run has no requests, so there is no stability to judge")
    table = _accepted(run, "arrival_ps", "prompt_tokens", "output_tokens")
    last = min(int(table["arrival_ps"].max()) if table["arrival_ps"].size else 0, run.info.end_ps)
    first = int(run.requests["arrival_ps"][0])
    middle = first + (last - first) // 2
    stopped = run.info.stop_reason == "backlog"
    grid = np.linspace(middle, last, GRID_POINTS).astype(np.int64)
    step_s = (last - middle) / (GRID_POINTS - 1) / PS_PER_S
    if last - middle < GRID_POINTS:
        short = stability_verdict(
            np.zeros(0), 0.0, arriving_work_per_s=0.0, arrivals=0, stopped_by_backlog=stopped, **options
        )
        return _with_those_who_never_fit(run, short)
    late = 1 if run.info.token_convention == "engine" else 0
    inside = (table["arrival_ps"] >= middle) & (table["arrival_ps"] <= last)
    work = int(table["prompt_tokens"][inside].sum() + np.maximum(table["output_tokens"][inside] - late, 0).sum())
    # what is there at the first arrival and all that came with it: a backlog to begin with is no growth
    path = work_path(run, np.append(grid, first))
    answer = stability_verdict(
        path[:-1],
        step_s,
        arriving_work_per_s=work / ((last - middle) / PS_PER_S),
        arrivals=int(inside.sum()),
        stopped_by_backlog=stopped,
        stay_s=_first_stay_s(run),
        begin_work=float(path[-1]),
        **options,
    )
    return _with_those_who_never_fit(run, answer)


def _with_those_who_never_fit(run: Run, answer: StabilityVerdict) -> StabilityVerdict:
    """Return "unstable" where requests are rejected that a queue would keep for ever, else the answer."""
    never = int((run.requests["reject_reason"][run.requests["status"] == REJECTED] == NEVER_FITS).sum())
    if not never or answer.verdict == "unstable":
        return answer
    reason = (
        f"{never} requests are longer than the token budget and can never be served: a queue that kept them would grow "
        "for ever; raise the token budget"
    )
    return replace(answer, verdict="unstable", reason=reason)
