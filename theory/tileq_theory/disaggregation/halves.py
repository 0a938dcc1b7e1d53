"""The halves of a workload: what prefill nodes and decode nodes are asked, for their tile plans."""

from __future__ import annotations

__all__ = ["DecodeHalf", "PrefillHalf"]

from dataclasses import dataclass

from tileq_theory.capacity.budget import HasDemand
from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.disaggregation.split import decode_demand, prefill_demand


@dataclass(frozen=True, slots=True)
class PrefillHalf:
    """What prefill nodes do of a workload.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> PrefillHalf(Independent(Fixed(100), Fixed(10))).demand(chunk_tokens=50).slot_iterations
    2.0
    """

    whole: HasDemand

    def demand(
        self, *, chunk_tokens: int, convention: TokenConvention = "engine", counting: ChunkCounting = "whole"
    ) -> Demand:
        """Return the prefill half of the demand of one request."""
        return prefill_demand(self.whole.demand(chunk_tokens=chunk_tokens, convention=convention, counting=counting))


@dataclass(frozen=True, slots=True)
class DecodeHalf:
    """What decode nodes do of a workload.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> DecodeHalf(Independent(Fixed(100), Fixed(10))).demand(chunk_tokens=50).slot_iterations
    9.0
    """

    whole: HasDemand

    def demand(
        self, *, chunk_tokens: int, convention: TokenConvention = "engine", counting: ChunkCounting = "whole"
    ) -> Demand:
        """Return the decode half of the demand of one request."""
        return decode_demand(self.whole.demand(chunk_tokens=chunk_tokens, convention=convention, counting=counting))
