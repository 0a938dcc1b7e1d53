r"""A length law whose prompts are partly in a prefix cache: what is left to prefill, and what memory is shared.

Of a prompt of P tokens H are found, 0 <= H <= P - 1, and U = P - H are computed in chunks on top of them:

    prefill tokens       E[U]
    attention pairs      E[P(P + 1)/2 - H(H + 1)/2]                      (a computed token attends to all before it)
    decode tokens, reads as without the cache: a decode step reads its whole context, found or computed
    memory               the chunks hold H + s, H + 2s, ..., P; S <= H of these tokens are held by other residents too
                         and count once, with them: g = E[(H - S) m + (chunks of U)] + G - E[S D],   m = ceil(U/s)
    slots                E[m] + D
    KV transferred       E[P], when prefill and decode nodes are apart

S is what a request shares with requests that are resident at the same time, not with the cache: a conversation's own
history is found but held by nobody else.
"""

from __future__ import annotations

__all__ = ["CachedLengths", "share_cached"]

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, finite, instance, positive_int, row_of_numbers
from tileq_theory.lengths.base import ChunkMoments, JointLaw, LengthLaw
from tileq_theory.lengths.checks import Numbers


@dataclass(frozen=True, slots=True, eq=False, init=False)
class CachedLengths(JointLaw):
    """The law of (P, O) of `base` with H tokens of each prompt found in a cache.

    Parameters
    ----------
    base
        Law of the whole lengths; requests drawn from it have whole prompts.
    prompt_tokens, cached_tokens
        P and H of each case; whole numbers need not be (means over cases are what counts).
    shared_tokens
        S of each case, at most H; None: 0.
    output_tokens
        O of each case where S and O depend on each other; None: independent.
    weights
        Weight of each case; None: equal.

    Raises
    ------
    InputError
        Naming the first case that does not fit.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> whole = Independent(Fixed(100), Fixed(10))
    >>> half = CachedLengths(whole, [100], [60])
    >>> demand = half.demand(chunk_tokens=100)
    >>> demand.prefill_tokens, demand.attention_pairs, demand.cached_tokens
    (40.0, 3220.0, 60.0)
    """

    base: JointLaw
    cached_tokens: Float[np.ndarray, "case"]
    shared_tokens: Float[np.ndarray, "case"]
    computed_tokens: Float[np.ndarray, "case"]
    weights: Float[np.ndarray, "case"]
    _output: Float[np.ndarray, "case"] | None

    def __init__(
        self,
        base: JointLaw,
        prompt_tokens: Numbers,
        cached_tokens: Numbers,
        shared_tokens: Numbers | None = None,
        *,
        output_tokens: Numbers | None = None,
        weights: Numbers | None = None,
    ) -> None:
        instance("base", base, JointLaw)
        prompt, cached = row_of_numbers("prompt_tokens", prompt_tokens), row_of_numbers("cached_tokens", cached_tokens)
        shared = np.zeros_like(cached) if shared_tokens is None else row_of_numbers("shared_tokens", shared_tokens)
        weight = np.ones_like(cached) if weights is None else row_of_numbers("weights", weights)
        output = None if output_tokens is None else row_of_numbers("output_tokens", output_tokens)
        columns = [prompt, cached, shared, weight, *([] if output is None else [output])]
        if not prompt.size or any(column.shape != prompt.shape or column.ndim != 1 for column in columns):
            raise InputError(
                "prompt, cached, shared, output tokens or weights differ in number; expected as many, one or more"
            )
        wrong = ~((cached >= 0) & (cached <= prompt - 1) & (shared >= 0) & (shared <= cached) & (weight >= 0))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InputError(
                f"case {i} has {cached[i]:g} tokens cached, {shared[i]:g} of them shared, of a prompt of {prompt[i]:g} "
                f"and weight {weight[i]:g}; expected 0 <= shared <= cached <= prompt - 1: the last token is computed"
            )
        if weight.sum() <= 0:
            raise InputError("weights are all 0; expected at least one above 0")
        put = object.__setattr__
        put(self, "base", base)
        put(self, "cached_tokens", cached)
        put(self, "shared_tokens", shared)
        put(self, "computed_tokens", prompt - cached)
        put(self, "weights", weight / weight.sum())
        put(self, "_output", output)

    @property
    def prompt_law(self) -> LengthLaw:
        """Marginal law of the whole prompt length P."""
        return self.base.prompt_law

    @property
    def output_law(self) -> LengthLaw:
        """Marginal law of the output length."""
        return self.base.output_law

    def mean_product(self) -> float:
        """Return E[P O] of whole prompts."""
        return self.base.mean_product()

    @property
    def longest_context(self) -> float:
        """Essential supremum of P + O."""
        return self.base.longest_context

    @property
    def hit_share(self) -> float:
        """Share of prompt tokens that are found."""
        return float(self.weights @ self.cached_tokens) / self.base.prompt_law.mean()

    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return (whole prompt, output) lengths of `size` requests."""
        return self.base.sample(rng, size)

    def describe(self) -> str:
        """Return one short line."""
        return f"{self.base.describe()}; {100 * self.hit_share:.3g}% of prompt tokens cached"

    def demand(
        self, *, chunk_tokens: int, convention: TokenConvention = "engine", counting: ChunkCounting = "whole"
    ) -> Demand:
        """Return the demand of one request (see the module's text)."""
        whole = self.base.demand(chunk_tokens=chunk_tokens, convention=convention, counting=counting)
        slots, memory = self._prefill_moments(positive_int("chunk_tokens", chunk_tokens), counting)
        cached, w = self.cached_tokens, self.weights
        found = float(w @ cached)
        pairs = whole.attention_pairs - float(w @ (cached * (cached + 1))) / 2
        shared = self._shared_reads(convention, whole.decode_tokens)
        return replace(
            whole,
            prefill_tokens=max(whole.prefill_tokens - found, 0.0),
            attention_pairs=max(pairs, 0.0),
            memory_iterations=max(whole.kv_read_tokens - shared, 0.0) + memory,
            slot_iterations=slots + whole.decode_tokens,
            cached_tokens=found,
            kv_shared_tokens=min(shared, whole.kv_read_tokens),
        )

    def demand_by_chunk(
        self,
        chunk_tokens: Int[np.ndarray, "chunk"],
        *,
        convention: TokenConvention = "engine",
        counting: ChunkCounting = "whole",
    ) -> ChunkMoments:
        """Return g and u at every chunk size of an array."""
        whole = self.base.demand(chunk_tokens=1, convention=convention, counting="fluid")
        reads = max(whole.kv_read_tokens - self._shared_reads(convention, whole.decode_tokens), 0.0)
        sizes = [positive_int("chunk_tokens", int(s)) for s in chunk_tokens]
        moments = np.array([self._prefill_moments(s, counting) for s in sizes], dtype=float).reshape(-1, 2)
        return ChunkMoments(np.array(sizes, dtype=np.int64), reads + moments[:, 1], moments[:, 0] + whole.decode_tokens)

    def _shared_reads(self, convention: TokenConvention, decode_tokens: float) -> float:
        """Return E[S D], KV tokens read that other residents hold."""
        if self._output is None:
            return float(self.weights @ self.shared_tokens) * decode_tokens
        steps = np.maximum(self._output - (1.0 if convention == "engine" else 0.0), 0.0)
        return float(self.weights @ (self.shared_tokens * steps))

    def _prefill_moments(self, chunk: int, counting: ChunkCounting) -> tuple[float, float]:
        """Return E[m] and the KV held over the prefill iterations, shared tokens left out."""
        u, held = self.computed_tokens, self.cached_tokens - self.shared_tokens
        m = u / chunk if counting == "fluid" else np.ceil(u / chunk)
        if counting == "whole":
            own = chunk * m * (m - 1) / 2 + u
        elif counting == "least":
            own = m * u - chunk * m * (m - 1) / 2
        elif counting == "fluid":
            own = (u + u * u / chunk) / 2
        else:
            raise InputError(f"chunk counting is {counting!r}; expected 'whole', 'fluid' or 'least'")
        return float(self.weights @ m), float(self.weights @ (held * m + own))


def share_cached(base: JointLaw, share: float) -> CachedLengths:
    """Return the law of `base` with the leading floor(share P) tokens of every prompt in the cache, none shared.

    Parameters
    ----------
    base
        Law of the whole lengths.
    share
        In [0, 1]; the last token of a prompt is always computed.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> share_cached(Independent(Fixed(1000), Fixed(10)), 0.25).demand(chunk_tokens=512).prefill_tokens
    750.0
    """
    from tileq_theory.latency.length_atoms import length_atoms

    instance("base", base, JointLaw)
    if not 0 <= finite("share", share) <= 1:
        raise InputError(f"share is {share!r}; expected a share of the prompt tokens in [0, 1]")
    prompts, masses = length_atoms(base.prompt_law)
    cached = np.minimum(np.floor(share * prompts * (1 + 1e-15)), prompts - 1)
    return CachedLengths(base, prompts, np.maximum(cached, 0.0), weights=masses)
