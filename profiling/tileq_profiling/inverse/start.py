r"""Where the search starts: regressions on what the latencies say by themselves.

Decoding: request i makes O_i - 1 iterations between its first and its last token, and the run itself tells who decoded
beside it, with how much context, and whose prompts ended in between. So

    (e2e - TTFT)_i = (O_i - 1)(c + w) + k sum K + s sum m + beta' (prompt tokens that came in between)

is linear, with sums taken over the run's own record. Prefill: the TTFT of a request that shared it with nobody's
prompt is an intercept plus beta P plus e P^2/2.

Without single requests, the roofline or a typical shape of the coefficients is scaled to the latencies.
"""

from __future__ import annotations

__all__ = ["scaled_start", "structural_start"]

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tileq_engine.requests import Requests
from tileq_engine.run import PS_PER_S
from tileq_profiling.fit.rows import BETA, NAMES, C, E, K, S, W
from tileq_profiling.inverse.evidence import Evidence, Target
from tileq_profiling.inverse.forward import Forward
from tileq_profiling.inverse.refine import at

_MOMENTS = 400
_FEWEST = 12
# shares of an 8-billion model's iteration on a datacentre GPU; only their shape is used, the scale is searched
_TYPICAL = {C: 1e-3, W: 1e-2, BETA: 5e-5, E: 1e-9, K: 5e-8, S: 5e-6}


def typical() -> Float[np.ndarray, "8"]:
    """Return coefficients of a common shape."""
    theta = np.zeros(len(NAMES) + 1)
    for j, value in _TYPICAL.items():
        theta[j] = value
    return theta


def scaled_start(forward: Forward, shape: Float[np.ndarray, "8"]) -> Float[np.ndarray, "8"]:
    """Return the multiple of a shape that comes closest to the latencies."""
    for grid in (np.geomspace(1 / 64, 64, 13), np.geomspace(0.6, 1.7, 7)):
        # sigma of 1: far starts must be told apart by how far they are
        tries = [at(forward, shape * factor, np.ones(forward.measured.size)) for factor in grid]
        shape = min(tries, key=lambda t: t.loss).theta
    return shape


def structural_start(evidence: Sequence[Evidence]) -> Float[np.ndarray, "8"] | None:
    """Return the regressions' coefficients; None where no run has TTFT and TPOT of its requests."""
    decode_rows, decode_times, prefill_rows, prefill_times = [], [], [], []
    for one in evidence:
        told = {t.name: t for t in one.targets if t.statistic == "each"}
        if one.clients is not None or not {"ttft_s", "tpot_s"} <= told.keys():
            continue
        rows, times = _decodes(one.requests[0], told["ttft_s"], told["tpot_s"])
        decode_rows.append(rows)
        decode_times.append(times)
        rows, times = _prefills(one.requests[0], told["ttft_s"])
        prefill_rows.append(rows)
        prefill_times.append(times)
    if not decode_rows or sum(map(len, decode_rows)) < _FEWEST or sum(map(len, prefill_rows)) < _FEWEST:
        return None
    steady, k, s, _extra = _robust(np.vstack(decode_rows), np.concatenate(decode_times))
    start, beta, e = _robust(np.vstack(prefill_rows), np.concatenate(prefill_times))
    theta = np.zeros(len(NAMES) + 1)
    theta[C] = min(0.5 * steady, start)
    theta[W] = max(steady - theta[C], 0.0)
    theta[[BETA, E, K, S]] = beta, e, k, s
    return theta if beta > 0 and steady > 0 else None


def _robust(rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return nonnegative coefficients of relative residuals, three rounds of Huber's weights."""
    from scipy.optimize import nnls

    from tileq_profiling.fit.huber import huber_weights, spread

    scaled, weight = rows / times[:, None], np.ones(times.size)
    size = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    x = np.zeros(rows.shape[1])
    for _ in range(4):
        root = np.sqrt(weight)
        x = nnls(scaled / size * root[:, None], root)[0] / size
        residual = scaled @ x - 1
        weight = huber_weights(residual, max(1.345 * spread(residual), 1e-6))
    return x


def _decodes(asked: Requests, ttft: Target, tpot: Target) -> tuple[np.ndarray, np.ndarray]:
    """Return (iterations, sum K, sum m, prompt tokens in between) of each request's decoding, and its time."""
    arrival, prompt = asked.arrival_ps / PS_PER_S, asked.prompt_tokens.astype(float)
    steps = (asked.output_tokens - 1).astype(float)
    first, span = arrival + ttft.measured, tpot.measured * steps
    fine = np.isfinite(span) & (span > 0)
    first, span, steps, prompt_fine = first[fine], span[fine], steps[fine], prompt[fine]
    moments = np.linspace(first.min(), (first + span).max(), _MOMENTS) if first.size else np.empty(0)
    inside = (moments[:, None] >= first) & (moments[:, None] < first + span)
    done = np.clip((moments[:, None] - first) / span, 0, 1) * steps
    held = np.where(inside, prompt_fine + done, 0.0).sum(axis=1)
    many = inside.sum(axis=1).astype(float)
    rows = []
    for start, length, count, own in zip(first, span, steps, prompt_fine, strict=True):
        window = (moments >= start) & (moments < start + length)
        mean_held = held[window].mean() if window.any() else own + count / 2
        mean_many = many[window].mean() if window.any() else 1.0
        came = prompt_fine[(first > start) & (first <= start + length)].sum()
        rows.append((count, count * mean_held, count * mean_many, came))
    return np.array(rows).reshape(-1, 4), span


def _prefills(asked: Requests, ttft: Target) -> tuple[np.ndarray, np.ndarray]:
    """Return (1, P, P^2/2) and the TTFT of requests whose prompt met no other, all of them where few did."""
    arrival, prompt = asked.arrival_ps / PS_PER_S, asked.prompt_tokens.astype(float)
    first = arrival + ttft.measured
    known = np.isfinite(first)
    order = np.sort(first[known])
    met = np.searchsorted(order, first, side="left") - np.searchsorted(order, arrival, side="left")
    alone = known & (met == 0)
    came = np.searchsorted(arrival, first, side="left") - np.arange(arrival.size) - 1
    alone &= came <= 0
    if alone.sum() < _FEWEST:
        fast = ttft.measured / prompt
        alone = known & (fast <= np.nanquantile(fast, 0.3))
    p = prompt[alone]
    return np.column_stack([np.ones(p.size), p, p * (p + 1) / 2]), ttft.measured[alone]
