"""What the gate-and-route program answers: the operating point, its prices and the check of its optimality."""

from __future__ import annotations

__all__ = ["GateAndRoute", "GateAndRouteKkt", "GateAndRoutePrices"]

from dataclasses import dataclass

from tileq_theory.gate_and_route.fleet import ClassArray


@dataclass(frozen=True, slots=True)
class GateAndRoutePrices:
    """Dual prices: revenue per second gained per unit of each right-hand side.

    Parameters
    ----------
    gpu, mixed_slot, solo_slot
        One more GPU (in GPUs of the fleet), mixed decode slot, solo decode slot; each 0 or more.
    arrival
        One more arriving request per second of class i.
    prefilled
        One more prefilled request per second of class i.
    """

    gpu: float
    mixed_slot: float
    solo_slot: float
    arrival: ClassArray
    prefilled: ClassArray


@dataclass(frozen=True, slots=True)
class GateAndRouteKkt:
    """Largest violations of the optimality conditions, relative to the size of each row.

    Parameters
    ----------
    primal, dual, stationarity, complementarity
        Constraints; signs of the prices; no profitable direction; price times slack, relative to the revenue.
    """

    primal: float
    dual: float
    stationarity: float
    complementarity: float

    @property
    def worst(self) -> float:
        """The largest of the four."""
        return max(self.primal, self.dual, self.stationarity, self.complementarity)


@dataclass(frozen=True, slots=True)
class GateAndRoute:
    """Optimal fluid operating point, per GPU of the fleet.

    Parameters
    ----------
    revenue_per_s
        R*, money per second.
    prefill_share
        x, share of GPUs that prefill class i.
    mixed_decodes, solo_decodes
        y_m and y_s, decodes per GPU of the fleet.
    prefill_queue, decode_queue
        q_p and q_d, waiting requests per GPU (0 where theta_i = 0: the fluid does not determine them).
    throughput_per_s
        Completed requests of class i per second.
    abandoned_per_s
        Requests of class i per second that give up, before and after prefill together.
    charging
        "bundled" or "separate".
    prices
        Dual prices.
    kkt
        Check of this very answer.
    """

    revenue_per_s: float
    prefill_share: ClassArray
    mixed_decodes: ClassArray
    solo_decodes: ClassArray
    prefill_queue: ClassArray
    decode_queue: ClassArray
    throughput_per_s: ClassArray
    abandoned_per_s: ClassArray
    charging: str
    prices: GateAndRoutePrices
    kkt: GateAndRouteKkt

    @property
    def mixed_share(self) -> float:
        """Share of GPUs that run mixed."""
        return float(self.prefill_share.sum())
