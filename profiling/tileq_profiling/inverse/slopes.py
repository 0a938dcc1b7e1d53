r"""How a simulated latency depends on each coefficient while its schedule stays as it is.

A request's TTFT is a sum of iterations, the one in progress at its arrival by the part that is left, and so

    TTFT = overhead + sum_j theta_j F_j,   F_j: sum over those iterations of what coefficient j multiplies;

TPOT is such a sum over its decode steps divided by their number. F is read off the trace of the run, without noise.
The schedule moves too when a coefficient does (a longer queue stands before the arrival); that part is left out: F
serves as the instrument of an estimating equation, which only needs it to be correlated with the true derivative.
"""

from __future__ import annotations

__all__ = ["WorkBefore", "traced"]

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_engine.simulator import RawRun
from tileq_profiling.fit.rows import BETA, NAMES, A, C, E, K, S, W
from tileq_theory.iteration_time import IterationTime


def traced(config: EngineConfig, asked: Requests) -> EngineConfig:
    """Return settings under which every iteration of these requests is recorded."""
    prompt, output = asked.prompt_tokens.astype(np.int64), asked.output_tokens.astype(np.int64)
    entries = int(output.sum() + (prompt // config.token_budget + 2).sum())
    return config.with_(sample_limit=max(entries, 2), trace_limit=4 * entries + 1024)


class WorkBefore:
    """Sums of what each coefficient multiplies, from the start of a traced run to a moment."""

    def __init__(self, raw: RawRun, time: IterationTime) -> None:
        trace = raw.trace
        number = trace.iteration - trace.iteration[0] if trace.iteration.size else trace.iteration
        _, first = np.unique(number, return_index=True)
        self.start = trace.start_ps[first].astype(float)
        self.duration = trace.duration_ps[first].astype(float)
        iteration = np.searchsorted(number[first], number)
        rows = _per_iteration(raw, iteration, first.size)
        terms = _terms(rows, time)
        self.terms = terms
        self.total = np.concatenate([np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)])

    def __call__(self, moment_ps: Int[np.ndarray, "moment"]) -> Float[np.ndarray, "moment 7"]:
        """Return the sums at each moment, the iteration in progress by the share that has passed."""
        at = np.searchsorted(self.start, moment_ps, side="right") - 1
        inside = np.clip(at, 0, None)
        share = np.clip((moment_ps - self.start[inside]) / self.duration[inside], 0.0, 1.0)
        out: np.ndarray = self.total[inside] + np.where(at >= 0, share, 0.0)[:, None] * self.terms[inside]
        return out


def _per_iteration(raw: RawRun, iteration: Int[np.ndarray, "entry"], count: int) -> Float[np.ndarray, "iteration 4"]:
    """Return (n, A, K, m) of every traced iteration."""
    trace, prompt = raw.trace, raw.requests.prompt_tokens
    chunk, decode = trace.prefill_tokens.astype(float), trace.decode.astype(float)
    # what of each request was done before each entry: entries in time order, summed within a request
    order = np.argsort(trace.request, kind="stable")
    owner = trace.request[order]
    new = np.flatnonzero(np.diff(owner, prepend=-1))
    before = {}
    for name, amount in (("chunk", chunk), ("decode", decode)):
        running = np.cumsum(amount[order]) - amount[order]
        group = np.repeat(running[new], np.diff(np.append(new, owner.size)))
        back = np.empty(order.size)
        back[order] = running - group
        before[name] = back
    history = np.minimum(before["chunk"], prompt[trace.request].astype(float))
    context = prompt[trace.request] + before["decode"] + 1
    sums = (
        chunk + decode,
        chunk * (history + (chunk + 1) / 2),
        decode * context,
        np.ones(chunk.size),
    )
    return np.column_stack([np.bincount(iteration, weights=amount, minlength=count) for amount in sums])


def _terms(rows: Float[np.ndarray, "iteration 4"], time: IterationTime) -> Float[np.ndarray, "iteration 7"]:
    n, pairs, kv, sequences = rows.T
    tiles = np.ceil(n / time.tile_tokens)
    linear = time.tile_s * tiles + time.token_s * n
    floor = (linear <= time.weight_floor_s).astype(float)
    out = np.zeros((len(n), len(NAMES)))
    out[:, C] = 1.0
    out[:, W] = floor
    out[:, A] = (1 - floor) * tiles
    out[:, BETA] = (1 - floor) * n
    out[:, E], out[:, K], out[:, S] = pairs, kv, sequences
    return out
