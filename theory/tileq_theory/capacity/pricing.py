r"""Proof that no other batch size helps: the reduced value of every n, in closed form.

Given the duals of a solved program, one iteration of n tokens is worth at most

    f(n) = V(n) + v_g (memory) + v_u (slots) - v_T tau(n),
    V(n) = max  v_P p + v_D d + r_y y + r_z z
           p + d <= n, d <= N, y <= M, z <= L p, k y + e z + s d <= T - tau(n)

V is a linear program in four variables; by duality in its last row,

    V(n) = min over nu >= 0 of  nu (T - tau(n)) + M (r_y - nu k)^+ + W(nu, n),

where W fills the batch with the better of the two kinds of token. The minimum is at one of six values of nu.
If f(n) <= 0 for every n, the answer is optimal over *all* batch sizes, not only over the levels it was given
(column generation); otherwise the best n is added and the program is solved again.
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
    """Return V for one unit of X at each level: the minimum over the six candidate multipliers."""
    most_p = _inverse(k.prefill_share)  # units of p' that fill one unit of X
    most_d = _inverse(k.decode_share)
    slot_d = np.minimum(most_d, _inverse(k.slot_share))
    most_y = _inverse(k.kv_share)
    reach = 1.0 / k.attention_need if k.attention_need > 0 else np.inf
    best = np.full(len(k.busy), np.inf)
    for nu in _multipliers(k, v_p, v_d, r_y, r_z, reach):
        y_gain = max(r_y - nu * k.kv_cost, 0.0)
        z_gain = max(r_z - nu * k.pair_cost, 0.0)
        y_part = most_y * y_gain if y_gain > _ROUNDING else 0.0
        p_gain = v_p + (reach * z_gain if z_gain > _ROUNDING else 0.0)
        d_gain = max(v_d - nu * k.decode_sequence_cost, 0.0)
        fill = np.maximum(_fill(most_p, most_d, slot_d, p_gain, d_gain), most_p * p_gain)
        best = np.minimum(best, nu * k.tbt_room + y_part + fill)
        if not k.tbt:
            break
    return np.where(k.tbt_room < 0, -np.inf, best) if k.tbt else best


def _fill(most_p: np.ndarray, most_d: np.ndarray, slot_d: np.ndarray, p_gain: float, d_gain: float) -> np.ndarray:
    """Value of as many decodes as the slots allow, the rest of the batch given to prefill."""
    free = np.where(np.isinf(most_d), 1.0, 1.0 - slot_d / most_d)
    decodes = np.where(np.isinf(slot_d), 0.0, slot_d) * d_gain
    return decodes + np.where(np.isinf(most_p), 0.0, most_p) * np.maximum(free, 0.0) * p_gain


def _multipliers(k: Coefficients, v_p: float, v_d: float, r_y: float, r_z: float, reach: float) -> list[float]:
    """Return the nonnegative breakpoints of the dual function in nu."""
    if not k.tbt:
        return [0.0]
    candidates = [0.0]
    c_y, c_z, c_d = k.kv_cost, k.pair_cost, k.decode_sequence_cost
    candidates += [r / c for r, c in ((r_y, c_y), (r_z, c_z), (v_d, c_d)) if c > 0]
    # where a decode and a prefill token of the same batch space are worth the same
    per_p = float(np.median(k.decode_share / k.prefill_share)) if np.all(k.prefill_share > 0) else 0.0
    if c_d > 0:
        candidates.append((v_d - per_p * v_p) / c_d)
    slope = per_p * reach * c_z - c_d if c_z > 0 else -c_d
    if np.isfinite(slope) and slope != 0:
        candidates.append((per_p * (v_p + reach * r_z) - v_d) / slope)
    return [nu for nu in candidates if nu >= 0 and np.isfinite(nu)]


def _inverse(share: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(share > 0, 1.0 / np.where(share > 0, share, 1.0), np.inf)
