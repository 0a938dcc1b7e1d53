"""The answer of the capacity program: rate, levels in use, prices, elasticities, binding constraint."""

from __future__ import annotations

__all__ = ["Binding", "Capacity", "LevelUse", "Prices"]

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tileq_theory.capacity.coefficients import Coefficients
from tileq_theory.capacity.levels import LevelKind
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.program import Solution
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_theory.capacity.kkt import KktReport

Binding = Literal["time", "weights_floor", "memory", "slots", "tbt"]


@dataclass(frozen=True, slots=True)
class LevelUse:
    """One batch size in use at capacity, per node.

    Parameters
    ----------
    tokens, kind
        n, and what the level may hold.
    iterations_per_s
        x, iterations of this size per second.
    prefill_tokens, decode_tokens
        Mean prefill and decode tokens of one such iteration.
    kv_read_tokens, attention_pairs
        Mean KV tokens read and query-key pairs of one such iteration.
    iteration_s
        Mean time of one such iteration, seconds (KV reads and attention included, sequences not).
    """

    tokens: int
    kind: LevelKind
    iterations_per_s: float
    prefill_tokens: float
    decode_tokens: float
    kv_read_tokens: float
    attention_pairs: float
    iteration_s: float

    def to_dict(self) -> dict[str, object]:
        """Return the level as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Prices:
    """What one more unit of demand costs at capacity, in seconds of one node.

    A class with demand vector delta costs `price . delta`; sum_i lambda_i price_i <= R is a facet of the stability
    region (linear-programming duality), with equality at the optimum.
    """

    prefill_token_s: float
    decode_token_s: float
    kv_read_token_s: float
    attention_pair_s: float
    memory_iteration_s: float
    slot_iteration_s: float

    def of(self, demand: Demand) -> float:
        """Return the price of one request with `demand`, seconds of one node."""
        return float(self.vector() @ demand.vector())

    def vector(self) -> Any:
        """Return the prices in the order of `Demand.vector`, shape (6,)."""
        import numpy as np

        return np.array([getattr(self, name) for name in self.__dataclass_fields__])

    def to_dict(self) -> dict[str, float]:
        """Return the prices as plain data, with their sources' words."""
        return {name: float(getattr(self, name)) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Capacity:
    """Answer of `capacity`: an outer bound that no policy exceeds, and why it is where it is.

    Parameters
    ----------
    rate_per_s
        lambda*, requests per second over all nodes.
    binding
        The limit that decides it (see `elasticities`).
    prices
        Dual prices of the six kinds of demand.
    levels
        Batch sizes in use, largest share of time first.
    usage
        For each row, used/available at the optimum, in [0, 1]; 1 means binding. Only rows that exist.
    elasticities
        d ln lambda* / d ln limit for kv_tokens, max_num_seqs, tbt_s, and for each coefficient of the iteration time:
        what one percent more of it brings, in percent.
    time_shares
        Shares of node time: launch, weights_floor, linear (tiles, elementwise), kv_reads, attention, sequences, idle.
    levels_proof
        Largest reduced value over all batch sizes 1..n_max, relative to lambda*; 0 up to rounding means that no
        other batch size would help. None where the levels were prescribed.
    """

    rate_per_s: float
    binding: Binding
    prices: Prices
    levels: tuple[LevelUse, ...]
    usage: dict[str, float]
    elasticities: dict[str, float]
    time_shares: dict[str, float]
    levels_proof: float | None
    time: IterationTime
    demand: Demand
    limits: Limits
    coefficients: Coefficients
    solution: Solution

    @property
    def error_band(self) -> tuple[float, float]:
        """Interval of lambda* from the error band of the iteration time, requests per second."""
        return self.time.error_band.of_rate(self.rate_per_s)

    def price_of(self, demand: Demand) -> float:
        """Return the load that one request per second of `demand` puts on the whole system (1 at the boundary)."""
        return self.prices.of(demand) / self.limits.nodes

    def kkt(self) -> KktReport:
        """Check the Karush-Kuhn-Tucker conditions of this answer, assembled apart from the solver."""
        from tileq_theory.capacity.kkt import check_kkt

        return check_kkt(self.coefficients, self.solution)

    def to_dict(self) -> dict[str, object]:
        """Return the answer as plain data."""
        return {
            "rate_per_s": self.rate_per_s,
            "error_band": list(self.error_band),
            "binding": self.binding,
            "prices": self.prices.to_dict(),
            "levels": [level.to_dict() for level in self.levels],
            "usage": dict(self.usage),
            "elasticities": dict(self.elasticities),
            "time_shares": dict(self.time_shares),
            "levels_proof": self.levels_proof,
            "kkt": self.kkt().to_dict(),
            "limits": self.limits.to_dict(),
            "iteration_time": self.time.to_dict(),
        }
