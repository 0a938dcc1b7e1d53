r"""What one request asks of a node: the six moments of `theory.md` section 3.

With prompt P, decode steps D (O or O - 1 by the token convention), chunk size s and the chunk count
m = ceil(P/s) (whole) or P/s (fluid):

    P = E[P]                                    prefill tokens
    D = E[D]                                    decode tokens
    G = E[D P + D (D + 1)/2]                    KV tokens read by the decode steps
    A = E[P (P + 1)/2]                          query-key pairs of the prefill (any chunking)
    g = G + E[s m (m - 1)/2 + P]   (whole)      memory-iterations: KV held, summed over iterations
      = G + E[P (1 + P/s)/2]       (fluid)
    u = E[m] + D                                slot-iterations: iterations taken part in

Every one is linear in a mix of classes, which is why the capacity program stays a linear program.

Where part of the prompts is in a prefix cache (`prefix_cache.CachedLengths`), P counts what is computed,
`cached_tokens` what is not, and `kv_shared_tokens` the part of G that reads memory which other residents hold too: it
takes time, not room.
"""

from __future__ import annotations

__all__ = ["Demand"]

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True)
class Demand:
    """Expected demand of one request (or of one request of a mix).

    Parameters
    ----------
    prefill_tokens, decode_tokens
        P and D, tokens.
    kv_read_tokens
        G, KV tokens read over all decode steps.
    attention_pairs
        A, query-key pairs of the prefill.
    memory_iterations
        g, KV tokens held summed over iterations.
    slot_iterations
        u, iterations taken part in.
    longest_prompt_tokens
        Essential supremum of P (inf for unbounded laws).
    longest_context_tokens
        Essential supremum of P + O (inf for unbounded laws).
    shortest_context_tokens
        Least KV that a decode step reads: the shortest prompt plus one (0: not known, which is always valid).
    cached_tokens
        Prompt tokens found in a prefix cache; P does not count them.
    kv_shared_tokens
        Part of G whose memory is shared with other residents, at most G.
    """

    prefill_tokens: float
    decode_tokens: float
    kv_read_tokens: float
    attention_pairs: float
    memory_iterations: float
    slot_iterations: float
    longest_prompt_tokens: float = math.inf
    longest_context_tokens: float = math.inf
    shortest_context_tokens: float = 0.0
    cached_tokens: float = 0.0
    kv_shared_tokens: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            bounded = not item.name.startswith("longest")
            if math.isnan(value) or value < 0 or (bounded and math.isinf(value)):
                raise InputError(f"demand {item.name} is {value!r}; expected a finite number that is 0 or more")
        if self.kv_shared_tokens > self.kv_read_tokens:
            raise InputError(
                f"demand kv_shared_tokens is {self.kv_shared_tokens!r}; expected at most kv_read_tokens, "
                f"{self.kv_read_tokens:g}"
            )

    @property
    def prompt_tokens(self) -> float:
        """Whole prompt, computed and found: what a transfer between nodes moves, tokens."""
        return self.prefill_tokens + self.cached_tokens

    @property
    def kv_held_tokens(self) -> float:
        """KV that decode steps hold, shared memory left out: what a capacity in tokens limits."""
        return self.kv_read_tokens - self.kv_shared_tokens

    def vector(self) -> np.ndarray:
        """Return (P, D, G, A, g, u), shape (6,)."""
        return np.array([getattr(self, f.name) for f in fields(self)[:6]], dtype=float)

    @staticmethod
    def mix(demands: Sequence[Demand], shares: Iterable[float]) -> Demand:
        """Return the demand of a request drawn from class i with probability proportional to shares[i]."""
        weights = [float(s) for s in shares]
        if len(weights) != len(demands) or not demands:
            raise InputError(f"{len(demands)} classes and {len(weights)} shares given; expected as many, at least one")
        if any(not math.isfinite(w) or w < 0 for w in weights) or math.fsum(weights) <= 0:
            raise InputError(f"class shares are {weights}; expected numbers of 0 or more, not all 0")
        total = math.fsum(weights)

        # fsum: the answer must not depend on the order in which classes are named
        def mean(name: str) -> float:
            return math.fsum(w * getattr(d, name) for w, d in zip(weights, demands, strict=True)) / total

        present = [d for w, d in zip(weights, demands, strict=True) if w > 0]
        return Demand(
            prefill_tokens=mean("prefill_tokens"),
            decode_tokens=mean("decode_tokens"),
            kv_read_tokens=mean("kv_read_tokens"),
            attention_pairs=mean("attention_pairs"),
            memory_iterations=mean("memory_iterations"),
            slot_iterations=mean("slot_iterations"),
            longest_prompt_tokens=max(d.longest_prompt_tokens for d in present),
            longest_context_tokens=max(d.longest_context_tokens for d in present),
            shortest_context_tokens=min(d.shortest_context_tokens for d in present),
            cached_tokens=mean("cached_tokens"),
            kv_shared_tokens=min(mean("kv_shared_tokens"), mean("kv_read_tokens")),
        )
