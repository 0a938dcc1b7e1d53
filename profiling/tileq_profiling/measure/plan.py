r"""Which batch to measure next: a space-filling start, then the one whose time is known worst for what it costs.

The start walks a Halton sequence through the logarithms of chunk, history, decodes and context, one kind of batch
after another, behind the corners of the space. After it the measured times are fitted by

    t = c + beta n + e A + k K + s m,    coefficients of 0 or more, relative error,

and the next batch x is the candidate with the largest variance of its predicted relative time, x' (X'X)^-1 x, over the
square root of the seconds that measuring it takes. Every third choice instead halves the widest unexplained gap
between lone prefills, where a step of the tile may hide.
"""

from __future__ import annotations

__all__ = ["Planner", "coarse", "halton"]

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from tileq_profiling.measure.batch import Batch
from tileq_profiling.measure.space import Space

_CANDIDATES = 240
_COARSE = 24
_PRIMES = (2, 3, 5, 7)


def halton(index: int, base: int) -> float:
    """Return entry `index` (from 1) of the van der Corput sequence of `base`.

    Examples
    --------
    >>> [halton(i, 2) for i in (1, 2, 3)]
    [0.5, 0.25, 0.75]
    """
    value, scale = 0.0, 1.0
    while index:
        scale /= base
        index, digit = divmod(index, base)
        value += digit * scale
    return value


def _log_int(share: float, most: int) -> int:
    return max(1, min(most, round(float(np.exp(share * np.log(most))))))


def _corners(space: Space) -> list[Batch]:
    n, m, s = space.most_tokens, space.most_sequences, space.longest_context
    return [
        Batch(decodes=1, context_tokens=1),
        Batch(chunk_tokens=n // 4),
        Batch(decodes=min(8, m), context_tokens=s // 8),
        Batch(chunk_tokens=n // 8, decodes=min(8, m), context_tokens=s // 16),
        Batch(decodes=m, context_tokens=1),
        Batch(chunk_tokens=16, history_tokens=s // 2),
        Batch(decodes=max(1, m // 8), context_tokens=s),
        Batch(chunk_tokens=n),
        Batch(chunk_tokens=1),
        Batch(chunk_tokens=n // 2, history_tokens=s - n // 2),
        Batch(decodes=m, context_tokens=s),
    ]


def _sequence(space: Space) -> Iterator[Batch]:
    """Yield batches of the three kinds in turn, filling the logarithmic space."""
    index = 0
    while True:
        index += 1
        u = [halton(index, prime) for prime in _PRIMES]
        chunk, decodes = _log_int(u[0], space.most_tokens), _log_int(u[1], space.most_sequences)
        history = _log_int(u[2], space.longest_context) if u[2] > 0.3 else 0
        context = _log_int(u[3], space.longest_context)
        kind = index % 3
        if kind == 0:
            yield Batch(chunk, history)
        elif kind == 1:
            yield Batch(decodes=decodes, context_tokens=context)
        else:
            yield Batch(chunk, history, decodes, context)


def _distinct(space: Space, given: Iterator[Batch] | list[Batch], count: int, seen: set[Batch]) -> list[Batch]:
    found: list[Batch] = []
    for tries, batch in enumerate(given):
        fitted = space.fit(batch)
        if fitted is not None and fitted not in seen:
            seen.add(fitted)
            found.append(fitted)
        if len(found) >= count or tries > 20 * count:
            break
    return found


def coarse(space: Space, count: int = _COARSE) -> list[Batch]:
    """Return the batches to begin with: the corners, then the space between them."""
    seen: set[Batch] = set()
    first = _distinct(space, _corners(space), count, seen)
    return first + _distinct(space, _sequence(space), count - len(first), seen)


def _row(batch: Batch) -> list[float]:
    return [1.0, float(batch.tokens), float(batch.pairs), float(batch.kv_tokens), float(batch.sequences)]


class Planner:
    """The adaptive part: give it what was measured, ask it for the next batch."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.measured: dict[Batch, float] = {}
        self._choices = _distinct(space, _sequence(space), _CANDIDATES, set())
        self._turn = 0

    def add(self, batch: Batch, seconds: float) -> None:
        """Take one measured batch."""
        self.measured[batch] = seconds

    def coefficients(self) -> Float[np.ndarray, "5"]:
        """Return the fit's nonnegative coefficients (zeros before the first measurement)."""
        if not self.measured:
            return np.zeros(5)
        from scipy.optimize import nnls

        rows = np.array([_row(batch) for batch in self.measured])
        times = np.array(list(self.measured.values()))
        scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
        found, _ = nnls(rows / scale / times[:, None], np.ones(times.size))
        return np.asarray(found / scale)

    def predict(self, batch: Batch) -> float:
        """Return the fit's seconds for a batch; the largest measured where it says nothing."""
        told = float(np.dot(self.coefficients(), _row(batch)))
        return told if told > 0 else max(self.measured.values(), default=0.0)

    def next(self, most_s: float) -> Batch | None:
        """Return the batch to measure next, of those predicted to take at most `most_s` seconds, or None."""
        self._turn += 1
        if self._turn % 3 == 0:
            gap = self._gap(most_s)
            if gap is not None:
                return gap
        open_choices = [b for b in self._choices if b not in self.measured]
        if not open_choices:
            return None
        rows = np.array([_row(batch) for batch in open_choices])
        predicted = np.maximum(rows @ self.coefficients(), 1e-9)
        scores = self._variance(rows / predicted[:, None]) / np.sqrt(predicted)
        scores[predicted > most_s] = -np.inf
        best = int(np.argmax(scores))
        return open_choices[best] if np.isfinite(scores[best]) else None

    def _variance(self, rows: Float[np.ndarray, "choice 5"]) -> Float[np.ndarray, "choice"]:
        known = np.array([np.array(_row(batch)) / time for batch, time in self.measured.items()])
        scale = np.maximum(np.abs(np.vstack([known, rows])).max(axis=0), 1e-300)
        known, rows = known / scale, rows / scale
        # the small ridge keeps a coefficient that nothing measured yet from making every choice infinite alike
        inverse = np.linalg.inv(known.T @ known + 1e-6 * np.eye(known.shape[1]))
        return np.asarray(np.einsum("ip,pq,iq->i", rows, inverse, rows))

    def _gap(self, most_s: float) -> Batch | None:
        """Return the middle of the lone-prefill gap whose jump the fit explains least."""
        lone = sorted((b.chunk_tokens, t) for b, t in self.measured.items() if not b.decodes and not b.history_tokens)
        best, choice = 0.0, None
        for (low, low_s), (high, high_s) in pairwise(lone):
            middle = (low + high) // 2
            batch = Batch(chunk_tokens=middle)
            if middle in (low, high) or batch in self.measured or self.predict(batch) > most_s:
                continue
            explained = self.predict(Batch(chunk_tokens=high)) - self.predict(Batch(chunk_tokens=low))
            surprise = abs((high_s - low_s) - explained) / high_s + 0.02 * np.log(high / low)
            if surprise > best:
                best, choice = float(surprise), batch
        return choice
