r"""From coefficients to the figures that were measured: one simulation a replication.

theta holds the seven coefficients of `IterationTime` in the order of `fit.rows.NAMES` and, last, the time that every
request spends outside of iterations before its first token (network, tokenizer, queue of the front end).
"""

from __future__ import annotations

__all__ = ["OVERHEAD", "PARAMETERS", "Forward"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_engine.run import PS_PER_S
from tileq_engine.simulator import RawRun, simulate
from tileq_profiling.fit.model import iteration_time
from tileq_profiling.fit.rows import NAMES
from tileq_profiling.inverse.evidence import Evidence, Target, of_statistic
from tileq_profiling.inverse.slopes import WorkBefore, traced

PARAMETERS = (*NAMES, "overhead_s")
OVERHEAD = len(NAMES)
_NEAR = 0.1  # of the requests on either side of a quantile, whose slopes stand for its own


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """All runs as one function from theta to log(predicted / measured).

    Parameters
    ----------
    evidence
        The runs.
    tile_tokens
        Tile of the model; None: affine.
    measured
        Every measured value in one column.
    kind
        Index of each value's (run, name, whether of each request) in `kinds`.
    kinds
        Those triples.
    block
        Number of the stretch of requests that a value belongs to: values of one stretch err together.
    """

    evidence: tuple[Evidence, ...]
    tile_tokens: int | None
    measured: Float[np.ndarray, "value"]
    known: Bool[np.ndarray, "slot"]
    kind: Int[np.ndarray, "value"]
    kinds: tuple[tuple[int, str, bool], ...]
    block: Int[np.ndarray, "value"]

    @classmethod
    def of(cls, evidence: Sequence[Evidence], tile_tokens: int | None, blocks: int = 40) -> Forward:
        """Return the function of some runs; about `blocks` stretches in all."""
        kinds: dict[tuple[int, str, bool], int] = {}
        measured, kind, block, first = [], [], [], 0
        each = max(8, blocks // len(evidence))
        for at, one in enumerate(evidence):
            for target in one.targets:
                n = target.measured.size
                key = (at, target.name, target.statistic == "each")
                measured.append(target.measured)
                kind.append(np.full(n, kinds.setdefault(key, len(kinds))))
                stretch = np.arange(n) * each // max(n, 1) if n > 1 else np.zeros(1, int)
                block.append(first + stretch)
            first += each
        values = np.concatenate(measured)
        known = np.isfinite(values)
        return cls(
            tuple(evidence),
            tile_tokens,
            values[known],
            known,
            np.concatenate(kind)[known].astype(np.int64),
            tuple(kinds),
            np.concatenate(block)[known].astype(np.int64),
        )

    def residual(self, theta: Float[np.ndarray, "8"]) -> Float[np.ndarray, "value"]:
        """Return log(predicted / measured) of every value; NaN where the simulated engine never served the request."""
        return np.asarray(self.halves(theta).mean(axis=0))

    def halves(self, theta: Float[np.ndarray, "8"]) -> Float[np.ndarray, "2 value"]:
        """Return the residuals of the even and of the odd replications: the noise of one is not that of the other."""
        out = []
        for one in self.evidence:
            logs = [self._logs(one, self.run(one, asked, theta), theta) for asked in one.requests]
            out.append(_by_half(np.stack(logs)))
        result: np.ndarray = np.concatenate(out, axis=1)[:, self.known] - np.log(self.measured)
        return result

    def slopes(
        self, theta: Float[np.ndarray, "8"], active: Sequence[int]
    ) -> tuple[Float[np.ndarray, "2 value"], Float[np.ndarray, "2 value active"]]:
        """Return `halves` and d residual / d theta of the active coefficients, by even and odd replications."""
        residuals, slopes = [], []
        for one in self.evidence:
            logs, moves = self._traced(one, theta)
            residuals.append(_by_half(logs))
            slopes.append(_by_half(moves)[:, :, list(active)])
        out: np.ndarray = np.concatenate(residuals, axis=1)[:, self.known] - np.log(self.measured)
        return out, np.concatenate(slopes, axis=1)[:, self.known]

    def _traced(self, one: Evidence, theta: Float[np.ndarray, "8"]) -> tuple[np.ndarray, np.ndarray]:
        """Return the log figures of each replication and their slopes, read off the traces."""
        time, logs, moves = iteration_time(theta[:OVERHEAD], self.tile_tokens), [], []
        for asked in one.requests:
            raw = simulate(asked, one.policy, time, traced(self._config(one), asked))
            work = WorkBefore(raw, time)
            values = [_predicted(t, one, raw, theta[OVERHEAD]) for t in one.targets]
            logs.append(np.log(np.concatenate(values)))
            parts = [_slopes(t, one, raw, work, theta[OVERHEAD]) for t in one.targets]
            moves.append(np.concatenate(parts) / np.concatenate(values)[:, None])
        return np.stack(logs), np.stack(moves)

    def _logs(self, one: Evidence, raw: RawRun, theta: Float[np.ndarray, "8"]) -> np.ndarray:
        return np.concatenate([np.log(_predicted(t, one, raw, theta[OVERHEAD])) for t in one.targets])

    @property
    def replications(self) -> int:
        """Replications of a run whose arrivals are moved or drawn; 1 where none is."""
        return max(len(one.requests) for one in self.evidence)

    def run(self, one: Evidence, asked: Requests, theta: Float[np.ndarray, "8"]) -> RawRun:
        """Return the simulated run of one replication."""
        return simulate(asked, one.policy, iteration_time(theta[:OVERHEAD], self.tile_tokens), self._config(one))

    @staticmethod
    def _config(one: Evidence) -> EngineConfig:
        if one.clients is None:
            return one.config
        return one.config.with_(max_num_seqs=min(one.config.max_num_seqs, one.clients))


def _by_half(values: np.ndarray) -> np.ndarray:
    """Return the means over the even and over the odd replications; the one twice where there is one."""
    return np.stack([values[0::2].mean(axis=0), values[1::2].mean(axis=0) if len(values) > 1 else values[0]])


def _predicted(target: Target, one: Evidence, raw: RawRun, overhead: float) -> Float[np.ndarray, "value"]:
    if target.statistic == "rate":
        return np.array([_rate(raw)])
    if target.name == "itl_s":
        return np.array([_gap(target.statistic, raw)])
    each = latency(target.name, raw, one.clients, overhead)
    return each if target.statistic == "each" else np.array([of_statistic(target.statistic, each)])


def _slopes(
    target: Target, one: Evidence, raw: RawRun, work: WorkBefore, overhead: float
) -> Float[np.ndarray, "value 8"]:
    """Return d value / d theta of a target's values."""
    if target.statistic == "rate":
        return _rate_slopes(raw, work)[np.newaxis]
    name = "tpot_s" if target.name == "itl_s" else target.name
    each = latency_slopes(name, raw, one.clients, work)
    if target.statistic == "each":
        return each
    values = latency(name, raw, one.clients, overhead)
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return np.zeros((1, len(PARAMETERS)))
    if target.statistic == "mean":
        return np.asarray(each[known].mean(axis=0, keepdims=True))
    wanted = 0.5 if target.statistic == "median" else float(target.statistic[1:]) / 100
    order = known[np.argsort(values[known])]
    low, high = (int(np.clip(round((wanted + side) * order.size), 0, order.size)) for side in (-_NEAR, _NEAR))
    near = order[min(low, order.size - 1) : max(high, low + 1)]
    return np.asarray(each[near].mean(axis=0, keepdims=True))


def _rate_slopes(raw: RawRun, work: WorkBefore) -> Float[np.ndarray, "8"]:
    """Return d rate / d theta: the rate falls as the time of all the work done grows."""
    out = np.zeros(len(PARAMETERS))
    rate = _rate(raw)
    if np.isfinite(rate):
        ends = np.array([raw.arrival_ps.min(), raw.finish_ps.max()])
        out[: len(NAMES)] = -rate * np.diff(work(ends), axis=0)[0] * PS_PER_S / float(np.diff(ends)[0])
    return out


def latency(name: str, raw: RawRun, clients: int | None, overhead: float) -> Float[np.ndarray, "request"]:
    """Return a latency of every request in the run's order, seconds; NaN where it has none."""
    out = np.full(raw.requests.ids.size, np.nan)
    out[raw.requests.ids] = _latency(name, raw, clients, overhead)
    out[~(out > 0)] = np.nan
    return out


def _latency(name: str, raw: RawRun, clients: int | None, overhead: float) -> Float[np.ndarray, "request"]:
    first, finish = (np.where(c >= 0, c / PS_PER_S, np.nan) for c in (raw.first_token_ps, raw.finish_ps))
    steps = np.where(raw.requests.output_tokens > 1, raw.requests.output_tokens - 1, np.nan)
    if name == "tpot_s":
        out: np.ndarray = (finish - first) / steps
        return out
    begin = raw.arrival_ps / PS_PER_S if clients is None else _entries(finish, clients)
    end: np.ndarray = first if name == "ttft_s" else finish
    return np.asarray(end - begin + overhead)


def latency_slopes(name: str, raw: RawRun, clients: int | None, work: WorkBefore) -> Float[np.ndarray, "request 8"]:
    """Return d latency / d theta of every request in the run's order, the schedule held."""
    first, finish = work(raw.first_token_ps), work(raw.finish_ps)
    steps = np.maximum(raw.requests.output_tokens - 1, 1)[:, None]
    if name == "tpot_s":
        own, outside = (finish - first) / steps, 0.0
    else:
        begin = raw.arrival_ps
        if clients is not None:
            begin = np.rint(PS_PER_S * _entries(raw.finish_ps / PS_PER_S, clients)).astype(np.int64)
        own, outside = (first if name == "ttft_s" else finish) - work(begin), 1.0
    out = np.zeros((len(own), len(PARAMETERS)))
    out[raw.requests.ids] = np.column_stack([own, np.full(len(own), outside)])
    return out


def _entries(finish: Float[np.ndarray, "request"], clients: int) -> Float[np.ndarray, "request"]:
    """Return when each request of a closed loop was sent: at once for the first `clients`, then as others finish."""
    entries = np.zeros(finish.size)
    done = np.sort(finish)
    entries[clients:] = done[: max(0, finish.size - clients)]
    return entries


def _rate(raw: RawRun) -> float:
    served = raw.finish_ps[raw.finish_ps >= 0]
    span = float(served.max() - raw.arrival_ps.min()) / PS_PER_S if served.size else 0.0
    return served.size / span if span > 0 else float("nan")


def _gap(statistic: str, raw: RawRun) -> float:
    """Return a statistic of all gaps between tokens."""
    gap, count = raw.gaps.gap_ps / PS_PER_S, raw.gaps.count
    if not gap.size:
        return float("nan")
    if statistic == "mean":
        return float(gap @ count / count.sum())
    order = np.argsort(gap)
    share = np.cumsum(count[order]) / count.sum()
    wanted = 0.5 if statistic == "median" else float(statistic[1:]) / 100
    return float(gap[order][min(int(np.searchsorted(share, wanted)), gap.size - 1)])
