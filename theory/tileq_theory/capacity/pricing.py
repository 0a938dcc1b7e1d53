r"""Proof that no other batch size helps: the reduced value of every n, in closed form.

Given the duals of a solved program, one iteration of n tokens is worth at most

    f(n) = V(n) + v_g (memory) + v_u (slots) - v_T tau(n),
    V(n) = max  v_P p + v_D d + r_y y + r_z z
           p + d <= n, d <= N, l d <= y <= min(M, L d), z <= L_p p, k y + e z + s d <= T - tau(n)

V is a linear program in four variables; by duality in its last row,

    V(n) = min over nu >= 0 of  nu (T - tau(n)) + W(nu, n),

where W fills the batch. With d decodes, y is at its least when reading does not pay and at its most when it does, so
the worth of d is concave with kinks at M/L and the largest d, and W is the best of the three. W is piecewise linear
in nu; its kinks are where two of the slopes cross. If f(n) <= 0 for every n, the answer is optimal over *all* batch
sizes, not only over the levels it was given (column generation); otherwise the best n is added and the program is
solved again.
"""

from __future__ import annotations

__all__ = ["PricedLevels", "reduced_values"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity.coefficients import Coefficients
from tileq_theory.capacity.levels import LevelKind
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.program import Solution
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime

_ROUNDING = 1e-12  # duals are of order 1; a smaller gain is rounding, and would be multiplied by an unbounded quantity


@dataclass(frozen=True, slots=True)
class PricedLevels:
    """f(n) in units of the optimal rate: the gain per unit of node time spent on batches of n tokens."""

    tokens: Float[np.ndarray, "size"]
    gain: Float[np.ndarray, "size"]

    @property
    def best_gain(self) -> float:
        """Largest f(n), relative to lambda*."""
        return float(self.gain.max())


def reduced_values(
    time: IterationTime,
    demand: Demand,
    limits: Limits,
    k: Coefficients,
    solution: Solution,
    tokens: Float[np.ndarray, "size"],
    kind: LevelKind = "mixed",
) -> PricedLevels:
    """Return f(n)/(v_T tau(n)) for each n in `tokens` and batches of `kind`, dimensionless (module's formulas)."""
    # the same coefficients, as if every n were a level: then f(n) is a column's reduced value
    wide = Coefficients.of(time, demand, limits, tokens, k.rate_unit_per_s)
    dual = {name: float(solution.duals[name]) for name in ("prefill_demand", "decode_demand", "kv_demand")}
    v_p, v_d = dual["prefill_demand"], dual["decode_demand"]
    v_time = float(solution.duals["time"])
    r_y = dual["kv_demand"] - v_time * wide.kv_cost
    r_z = float(solution.duals["attention_demand"]) - v_time * wide.pair_cost
    rescale = k.tau_scale_s.max() / wide.tau_scale_s.max()
    supply = rescale * (
        float(solution.duals["memory_time"]) * wide.memory_supply * (limits.kv_tokens is not None)
        + float(solution.duals["slot_time"]) * wide.slot_supply * (limits.max_num_seqs is not None)
    )
    if kind == "prefill":
        v_d = 0.0
    if kind == "decode":
        v_p = r_z = 0.0
    value = _best_filling(wide, v_p, v_d, r_y, r_z)
    gain = (value + supply - v_time * wide.busy) / max(v_time, 1e-300)
    return PricedLevels(tokens, gain)


def _best_filling(k: Coefficients, v_p: float, v_d: float, r_y: float, r_z: float) -> np.ndarray:
    """Return V for one unit of X at each level: the minimum of the dual function over its kinks."""
    worth = _Worth(k, v_p, v_d, r_y, r_z)
    if not k.tbt:
        return worth.filling(0.0)
    kinks = worth.kinks()
    best = np.min([nu * k.tbt_room + worth.filling(nu) for nu in kinks], axis=0)
    return np.where(k.tbt_room < 0, -np.inf, best)


class _Worth:
    """What tokens of a batch are worth once a second of its TBT room costs nu."""

    def __init__(self, k: Coefficients, v_p: float, v_d: float, r_y: float, r_z: float) -> None:
        self.k, self.v_p, self.v_d, self.r_y, self.r_z = k, v_p, v_d, r_y, r_z
        self.most_p = _inverse(k.prefill_share)  # units of p' that fill one unit of X
        self.most_d = _inverse(k.decode_share)
        self.most_y = _inverse(k.kv_share)
        slots = np.minimum(_inverse(k.slot_share), self.most_d)
        self.cap_d = np.minimum(slots, self.most_y / k.kv_least) if k.kv_least > 0 else slots
        self.pairs_per_p = 1.0 / k.attention_need if k.attention_need > 0 else np.inf
        self.reads_per_d = 1.0 / k.kv_need if k.kv_need > 0 else np.inf
        usable = bool(np.all(k.prefill_share > 0))
        self.p_per_d = float(np.median(k.decode_share / k.prefill_share)) if usable else 0.0

    def filling(self, nu: float) -> np.ndarray:
        """Return W(nu) at each level."""
        k = self.k
        c_y, c_z = self.r_y - nu * k.kv_cost, self.r_z - nu * k.pair_cost
        p_gain = self.v_p + (self.pairs_per_p * c_z if c_z > _ROUNDING else 0.0)
        d_gain = self.v_d - nu * k.decode_sequence_cost
        if c_y > _ROUNDING and not np.isfinite(self.reads_per_d):
            base, reads = self.most_y * c_y, 0.0  # reads are not tied to decodes
        else:
            base, reads = np.zeros_like(k.busy), c_y if c_y > _ROUNDING else 0.0
        unread = min(c_y, 0.0) * k.kv_least
        with np.errstate(invalid="ignore"):
            knee = np.minimum(self.most_y / self.reads_per_d, self.cap_d) if reads > 0 else self.cap_d
            knee = np.where(np.isfinite(knee), knee, 0.0)  # decodes without size (D = 0) have no worth either
            cap = np.where(np.isfinite(self.cap_d), self.cap_d, 0.0)
        options = [np.zeros_like(k.busy), knee, cap]
        filled: np.ndarray = base + np.max([self._value(d, p_gain, d_gain + unread, reads) for d in options], axis=0)
        return filled

    def _value(self, d: np.ndarray, p_gain: float, d_gain: float, reads: float) -> np.ndarray:
        """Worth of d decodes, the rest of the batch given to prefill."""
        read = np.minimum(self.most_y, self.reads_per_d * d) * reads if reads > 0 else 0.0
        free = np.where(np.isfinite(self.most_d), 1.0 - d / self.most_d, 1.0)
        prefill = np.where(np.isfinite(self.most_p), self.most_p, 0.0) * np.maximum(free, 0.0) * p_gain
        worth: np.ndarray = d * d_gain + read + prefill
        return worth

    def kinks(self) -> list[float]:
        """Return every nu >= 0 at which two slopes cross, and 0."""
        k = self.k
        # slopes as (value at nu = 0, decrease per nu)
        decode = [(self.v_d, k.decode_sequence_cost)]
        for reads in (k.kv_least, self.reads_per_d):
            if np.isfinite(reads):
                decode.append((self.v_d + reads * self.r_y, k.decode_sequence_cost + reads * k.kv_cost))
        prefill = [(0.0, 0.0), (self.p_per_d * self.v_p, 0.0)]
        if np.isfinite(self.pairs_per_p):
            reach = self.p_per_d * self.pairs_per_p
            prefill.append((self.p_per_d * self.v_p + reach * self.r_z, reach * k.pair_cost))
        lines = [(a, b, c, e) for a, b in decode for c, e in prefill]
        lines += [(self.r_y, k.kv_cost, 0.0, 0.0), (self.r_z, k.pair_cost, 0.0, 0.0)]
        crossings = [(a - c) / (b - e) for a, b, c, e in lines if b != e]
        return [0.0, *(nu for nu in crossings if nu > 0 and np.isfinite(nu))]


def _inverse(share: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(share > 0, 1.0 / np.where(share > 0, share, 1.0), np.inf)
