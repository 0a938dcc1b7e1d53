r"""Per-chunk times from what a lone prefill's run prints: its time to first token and its mean iteration.

A lone request of P prompt tokens in chunks of s runs floor(P/s) full chunks, a remainder of P mod s tokens if there
is one, and D decode steps. With T(x) the time of an iteration of x tokens,

    TTFT(s)                     = floor(P/s) T(s) + T(P mod s)
    mean(s) (ceil(P/s) + D)     = floor(P/s) T(s) + T(P mod s) + D T(1)

Two rows for each chunk size, one unknown for each size and each remainder, and T(1): least squares in relative error,
so neither published figure is taken as exact. Where a remainder occurs in one run only, its time and the full chunk's
are told together alone; a very weak preference for a straight line through the neighbouring sizes then splits them,
and `interpolated` names them.
"""

from __future__ import annotations

__all__ = ["ChunkTimes", "chunk_sizes", "recover_chunk_times"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tileq_profiling.profile.conditions import Conditions
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError, positive_int
from tileq_theory.iteration_time import IterationTime

_SMOOTHING = 1e-4


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """Recovered times.

    Parameters
    ----------
    tokens
        Sizes of the iterations, ascending; the first is the decode step (1 token).
    seconds
        T of each, averaged over the positions of the prompt.
    prompt_tokens, decode_steps
        Of the run.
    residual
        Largest relative mismatch of the published figures under the recovered times.
    interpolated
        Sizes whose own time the figures do not tell.
    """

    tokens: Int[np.ndarray, "size"]
    seconds: Float[np.ndarray, "size"]
    prompt_tokens: int
    decode_steps: int
    residual: float
    interpolated: tuple[int, ...] = ()

    def profile(self, conditions: Conditions | None = None) -> Profile:
        """Return the times as a profile; each chunk with the pairs of its mean position in the prompt.

        Its KV reads are left unknown: the one context of the decode step cannot tell k from the launch constant.
        """
        n = self.tokens.astype(float)
        decode = self.tokens == 1
        full = np.maximum(self.prompt_tokens // self.tokens, 1)
        history = n * (full - 1) / 2  # mean over the full chunks of the tokens already cached
        pairs = np.where(decode, 0.0, n * (history + (n + 1) / 2))
        return Profile.of(
            tokens=n,
            pairs=pairs,
            sequences=np.ones(n.size),
            seconds=self.seconds,
            prefill_tokens=np.where(decode, 0.0, n),
            conditions=conditions,
        )


def chunk_sizes(prompt_tokens: int, chunk_tokens: int) -> list[int]:
    """Return the chunks of a prompt, the remainder last.

    Examples
    --------
    >>> chunk_sizes(2048, 768)
    [768, 768, 512]
    """
    full, rest = divmod(positive_int("prompt_tokens", prompt_tokens), positive_int("chunk_tokens", chunk_tokens))
    return [chunk_tokens] * full + ([rest] if rest else [])


def recover_chunk_times(
    *,
    prompt_tokens: int,
    chunk_tokens: ArrayLike,
    ttft_s: ArrayLike,
    mean_iteration_s: ArrayLike,
    decode_steps: int = 1,
) -> ChunkTimes:
    """Return T(x) of every chunk, remainder and decode step that the runs contain.

    Parameters
    ----------
    prompt_tokens, decode_steps
        P and D of the lone request.
    chunk_tokens
        s of each run.
    ttft_s, mean_iteration_s
        What each run printed, seconds.

    Examples
    --------
    >>> t = recover_chunk_times(
    ...     prompt_tokens=8, chunk_tokens=[4, 8], ttft_s=[0.02, 0.016], mean_iteration_s=[0.024 / 3, 0.020 / 2]
    ... )
    >>> t.tokens.tolist(), t.seconds.round(6).tolist()
    ([1, 4, 8], [0.004, 0.01, 0.016])
    """
    chunks = [positive_int("chunk_tokens", c) for c in np.atleast_1d(np.asarray(chunk_tokens)).tolist()]
    ttft, mean = (np.atleast_1d(np.asarray(v, dtype=float)) for v in (ttft_s, mean_iteration_s))
    if not ttft.size == mean.size == len(chunks):
        raise InputError(f"{len(chunks)} chunk sizes, {ttft.size} TTFTs and {mean.size} means given; expected as many")
    if not (np.isfinite(ttft) & np.isfinite(mean) & (ttft > 0) & (mean > 0)).all():
        raise InputError("a TTFT or mean iteration time is not a finite number above 0; leave that run out")
    steps = positive_int("decode_steps", decode_steps)
    parts = [chunk_sizes(prompt_tokens, c) for c in chunks]
    sizes = sorted({1, *(x for p in parts for x in p)})
    counts = np.array([[p.count(x) for x in sizes] for p in parts], dtype=float)
    with_decode = counts.copy()
    with_decode[:, sizes.index(1)] += steps
    totals = mean * with_decode.sum(axis=1)
    matrix = np.vstack([counts / ttft[:, None], with_decode / totals[:, None]])
    from scipy.optimize import nnls

    straight = _SMOOTHING * _second_differences(np.array(sizes, dtype=float)) / float(mean.mean())
    times, _ = nnls(np.vstack([matrix, straight]), np.append(np.ones(matrix.shape[0]), np.zeros(straight.shape[0])))
    if (times <= 0).any():
        raise InputError(
            f"the figures leave no time for iterations of {sizes[int(np.argmin(times))]} tokens; check the units, the "
            f"prompt length ({prompt_tokens}) and the decode steps ({steps})"
        )
    residual = float(np.abs(matrix @ times - 1).max())
    return ChunkTimes(np.array(sizes), times, int(prompt_tokens), steps, residual, _untold(matrix, sizes))


def _second_differences(sizes: Float[np.ndarray, "size"]) -> Float[np.ndarray, "inner size"]:
    """Return the rows that are 0 where a time lies on the line between its neighbours' times."""
    rows = np.zeros((max(sizes.size - 2, 0), sizes.size))
    for i in range(rows.shape[0]):
        share = (sizes[i + 1] - sizes[i]) / (sizes[i + 2] - sizes[i])
        rows[i, i : i + 3] = share - 1, 1.0, -share
    return rows


def _untold(matrix: Float[np.ndarray, "figure size"], sizes: list[int]) -> tuple[int, ...]:
    """Return the sizes whose unit vector lies outside the rows' span: the figures do not tell them one by one."""
    seen = np.linalg.pinv(matrix) @ matrix
    return tuple(n for n, share in zip(sizes, np.diag(seen), strict=True) if share < 1 - 1e-6)


def ttft_of(time: IterationTime, prompt_tokens: int, chunk_tokens: int) -> float:
    """Return the time to first token of a lone prompt: its chunks, each with the pairs of its place in the prompt."""
    done, total = 0, 0.0
    for c in chunk_sizes(prompt_tokens, chunk_tokens):
        total += float(time(c, c * (done + (c + 1) / 2), 0.0, 1.0))
        done += c
    return total
