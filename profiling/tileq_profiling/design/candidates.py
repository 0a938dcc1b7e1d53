"""Batches that can be measured: lone chunks, decodes, and both together."""

from __future__ import annotations

__all__ = ["Batch", "batches"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tileq_theory.errors import positive_int


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch to measure.

    Parameters
    ----------
    chunk_tokens, history_tokens
        New tokens of the prefill chunk and tokens already cached for it (0 and 0 without one).
    decodes, context_tokens
        Decoding sequences and the KV tokens that each reads.
    """

    chunk_tokens: int = 0
    history_tokens: int = 0
    decodes: int = 0
    context_tokens: int = 0

    @property
    def kind(self) -> Literal["prefill", "decode", "mixed"]:
        """Phase of the batch."""
        if self.chunk_tokens and self.decodes:
            return "mixed"
        return "prefill" if self.chunk_tokens else "decode"

    @property
    def tokens(self) -> int:
        """n."""
        return self.chunk_tokens + self.decodes

    @property
    def pairs(self) -> float:
        """A."""
        return self.chunk_tokens * (self.history_tokens + (self.chunk_tokens + 1) / 2)

    @property
    def kv_tokens(self) -> int:
        """K."""
        return self.decodes * self.context_tokens

    @property
    def sequences(self) -> int:
        """m."""
        return self.decodes + (self.chunk_tokens > 0)

    @property
    def held_tokens(self) -> int:
        """KV tokens that the batch needs room for."""
        return self.chunk_tokens + self.history_tokens + self.kv_tokens


def _powers(most: int) -> list[int]:
    out = [1]
    while 2 * out[-1] <= most:
        out.append(2 * out[-1])
    return out


def batches(
    *,
    most_tokens: int = 2048,
    most_sequences: int = 256,
    longest_context: int = 8192,
    kv_tokens: float = float("inf"),
) -> Sequence[Batch]:
    """Return a grid of powers of two within what fits: chunks by history, decodes by context, and mixtures.

    Examples
    --------
    >>> len(batches(most_tokens=4, most_sequences=2, longest_context=4, kv_tokens=16))
    9
    """
    most, seqs, longest = (
        positive_int(n, v)
        for n, v in (
            ("most_tokens", most_tokens),
            ("most_sequences", most_sequences),
            ("longest_context", longest_context),
        )
    )
    chunks = [Batch(c, h) for c in _powers(most) for h in (0, *_powers(longest)[::3]) if c + h <= longest]
    contexts = _powers(longest)[::2]
    decodes = [Batch(decodes=d, context_tokens=s) for d in _powers(min(seqs, most)) for s in contexts]
    mixed = [
        Batch(c, 0, d, s)
        for c in _powers(most)[3::2]
        for d in _powers(seqs)[::3]
        for s in contexts[::2]
        if c + d <= most
    ]
    return [b for b in (*chunks, *decodes, *mixed) if b.held_tokens <= kv_tokens]
