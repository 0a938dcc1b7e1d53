"""Latencies and rates out of a record of what ran inside vLLM."""

from __future__ import annotations

__all__ = ["moments", "part_of", "saturated_rate_per_s"]

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from tileq_engine.clock import PS_PER_S
from tileq_engine.vllm.recording import Record

_LEAST_BUSY = 50  # iterations with somebody waiting, for a rate


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


def saturated_rate_per_s(record: Record, tokens_per_request: float) -> float | None:
    """Return the rate at which requests are served while others wait, by tokens; None when hardly any wait.

    The first fifth of those iterations, in which the batch fills up, is left out.
    """
    after = np.array([told.after_ps for told in record.requests])
    seen = set[int]()
    busy, tokens, landed = [], [], []
    for k, it in enumerate(record.iterations):
        seen.update(i for i, _ in it.members)
        tokens.append(it.shape[0])
        landed.append(it.landed_ps)
        if it.landed_ps >= 0 and int(np.count_nonzero(after < it.decided_ps)) > len(seen):
            busy.append(k)
    if len(busy) < _LEAST_BUSY:
        return None
    first, last = busy[len(busy) // 5], busy[-1]
    span = (landed[last] - landed[first]) / PS_PER_S
    return float(sum(tokens[first + 1 : last + 1])) / tokens_per_request / span if span > 0 else None
