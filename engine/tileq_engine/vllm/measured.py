"""Latencies and rates out of a record of what ran inside vLLM."""

from __future__ import annotations

__all__ = ["moments", "part_of", "rate_while_waiting_per_s", "saturated_rate_per_s"]

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from tileq_engine.clock import PS_PER_S
from tileq_engine.vllm.recording import Record

_LEAST_BUSY = 50  # iterations for a rate
_FILLING = 25  # iterations in which the batch fills up


def part_of(record: Record, first: int, last: int) -> Record:
    """Return the record of the requests `first` to `last - 1` alone; nobody else may have run beside them."""
    found = Record(token_budget=record.token_budget, requests=record.requests[first:last])
    for it in record.iterations:
        inside = [(i - first, tokens) for i, tokens in it.members if first <= i < last]
        if inside:
            found.iterations.append(replace(it, members=inside))
    return found


def moments(record: Record) -> tuple[Float[np.ndarray, "request"], Float[np.ndarray, "gap"]]:
    """Return each request's TTFT (NaN: no token) and all gaps between tokens, seconds, as the scheduler saw them.

    A decode brings a token, and so does the last chunk of a prefill: the one after which the request decodes, or is
    not seen again. (One that was preempted between the two lacks that token.)
    """
    outputs: list[list[tuple[int, bool]]] = [[] for _ in record.requests]
    for it in record.iterations:
        if it.landed_ps < 0:
            continue
        for i, chunk in it.members:
            outputs[i].append((it.landed_ps, chunk == 0))
    ttft = np.full(len(record.requests), np.nan)
    gaps = []
    for i, seen in enumerate(outputs):
        last = len(seen) - 1
        told = np.array(
            [at for k, (at, decode) in enumerate(seen) if decode or k == last or seen[k + 1][1]], dtype=float
        )
        if told.size:
            ttft[i] = (told[0] - record.requests[i].arrival_ps) / PS_PER_S
            gaps.append(np.diff(told) / PS_PER_S)
    return ttft, np.concatenate(gaps) if gaps else np.zeros(0)


def rate_while_waiting_per_s(
    tokens: Float[np.ndarray, "iteration"],
    end_s: Float[np.ndarray, "iteration"],
    waits: Bool[np.ndarray, "iteration"],
    tokens_per_request: float,
) -> float | None:
    """Return the rate at which requests are served while somebody waits, requests/s, by tokens.

    Tokens over time of the iterations in stretches in which somebody always waits, over the tokens of a request; an
    iteration lasts from the end of the one before. Of every stretch the first fifth is left out, and at least 25
    iterations: the batch fills up then. None where less than 50 iterations are left.

    Parameters
    ----------
    tokens, end_s
        Tokens that each iteration computed, and when it ended.
    waits
        Whether somebody waited when it was decided.

    Examples
    --------
    >>> always = np.ones(100, dtype=bool)
    >>> round(rate_while_waiting_per_s(np.full(100, 30.0), 0.01 * np.arange(100), always, 60.0), 9)
    50.0
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], waits, [False]]).astype(int)))
    counted = np.zeros(waits.size, dtype=bool)
    for begin, end in edges.reshape(-1, 2):
        counted[begin + max(_FILLING, (end - begin) // 5) : end] = True
    if int(counted.sum()) < _LEAST_BUSY:
        return None
    lasted = np.diff(end_s, prepend=end_s[0])
    return float(tokens[counted].sum() / lasted[counted].sum()) / tokens_per_request


def saturated_rate_per_s(record: Record, tokens_per_request: float) -> float | None:
    """Return `rate_while_waiting_per_s` of a record; None when hardly anybody waits."""
    after = np.sort([told.after_ps for told in record.requests])
    seen = set[int]()
    waits, tokens, landed = [], [], []
    for it in record.iterations:
        seen.update(i for i, _ in it.members)
        if it.landed_ps < 0:
            continue
        tokens.append(float(it.shape[0]))
        landed.append(it.landed_ps / PS_PER_S)
        waits.append(int(np.searchsorted(after, it.decided_ps)) > len(seen))
    if not waits:
        return None
    return rate_while_waiting_per_s(np.array(tokens), np.array(landed), np.array(waits), tokens_per_request)
