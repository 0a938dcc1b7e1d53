r"""The Karush-Kuhn-Tucker conditions of an answer, checked apart from the solver.

The program is written out again as one matrix, max c.v subject to A v <= b, v >= 0, and four residuals are taken:

    primal          max (A v - b)^+,  max (-v)^+
    dual            max (-pi)^+, max (c - A^T pi)^+
    complementary   max |pi (b - A v)|, max |v (A^T pi - c)|
    gap             |c.v - b.pi|

All are in the dimensionless units of `Coefficients`, relative to an optimum near 1.
"""

from __future__ import annotations

__all__ = ["KktReport", "check_kkt"]

from dataclasses import dataclass

import numpy as np

from tileq_theory.capacity.coefficients import Coefficients
from tileq_theory.capacity.program import Solution

_BLOCKS = "xpdyz"


@dataclass(frozen=True, slots=True)
class KktReport:
    """Largest violations; `ok(tolerance)` says whether all are below it."""

    primal: float
    dual: float
    complementary: float
    gap: float

    def ok(self, tolerance: float = 1e-7) -> bool:
        """Return True when every violation is at most `tolerance`."""
        return max(self.primal, self.dual, self.complementary, self.gap) <= tolerance

    def to_dict(self) -> dict[str, object]:
        """Return the violations and the verdict as plain data."""
        return {
            "primal": self.primal,
            "dual": self.dual,
            "complementary": self.complementary,
            "gap": self.gap,
            "ok": self.ok(),
        }


def check_kkt(k: Coefficients, solution: Solution) -> KktReport:
    """Return the violations of the optimality conditions of `solution`.

    A report that is not `ok()` means that the answer must not be used; it never happens silently, `capacity` checks it.
    """
    matrix, rhs, dual = _standard_form(k, solution)
    v = np.concatenate([*(getattr(solution, name) for name in _BLOCKS), [solution.rate]])
    objective = np.zeros(len(v))
    objective[-1] = 1.0
    slack = rhs - matrix @ v
    reduced = matrix.T @ dual - objective
    return KktReport(
        primal=float(max(np.max(-slack), np.max(-v), 0.0)),
        dual=float(max(np.max(-reduced), np.max(-dual), 0.0)),
        complementary=float(max(np.max(np.abs(dual * slack)), np.max(np.abs(v * reduced)))),
        gap=float(abs(objective @ v - rhs @ dual)),
    )


def _standard_form(k: Coefficients, s: Solution) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, b and the duals stacked in the same order of rows."""
    size = len(k.busy)
    eye, zero = np.eye(size), np.zeros((size, size))
    column = np.zeros((size, 1))
    one, none = np.ones(size), np.zeros(size)

    def block(x: np.ndarray, p: np.ndarray, d: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.hstack([x, p, d, y, z, column])

    def line(x: np.ndarray, p: np.ndarray, d: np.ndarray, y: np.ndarray, z: np.ndarray, rate: float) -> np.ndarray:
        return np.concatenate([x, p, d, y, z, [rate]])[None, :]

    tbt = k.tbt
    rows = {
        "batch": block(-eye, np.diag(k.prefill_share), np.diag(k.decode_share), zero, zero),
        "slots": block(-eye, zero, np.diag(k.slot_share), zero, zero),
        "kv": block(-eye, zero, zero, np.diag(k.kv_share), zero),
        "kv_least": block(zero, zero, k.kv_least * eye, -eye, zero),
        "kv_most": block(zero, zero, -eye, k.kv_need * eye, zero),
        "attention": block(zero, -eye, zero, zero, k.attention_need * eye),
        "tbt": block(
            -np.diag(k.tbt_room),
            zero,
            tbt * k.decode_sequence_cost * eye,
            tbt * k.kv_cost * eye,
            tbt * k.pair_cost * eye,
        ),
        "no_prefill": block(zero, np.diag(k.forbid_prefill), zero, zero, zero),
        "no_decode": block(zero, zero, np.diag(k.forbid_decode), zero, zero),
        "prefill_demand": line(none, -one, none, none, none, 1.0),
        "decode_demand": line(none, none, -one, none, none, 1.0),
        "kv_demand": line(none, none, none, -one, none, 1.0),
        "attention_demand": line(none, none, none, none, -one, 1.0),
        "memory_time": line(-k.memory_supply, none, none, none, none, k.memory_need),
        "slot_time": line(-k.slot_supply, none, none, none, none, k.slot_need),
        "time": line(k.busy, none, none, k.kv_cost * one, k.pair_cost * one, k.sequence_cost),
    }
    rhs = np.zeros(sum(len(block_rows) for block_rows in rows.values()))
    rhs[-1] = 1.0
    dual = np.concatenate([np.atleast_1d(np.asarray(s.duals[name], dtype=float)) for name in rows])
    return np.vstack(list(rows.values())), rhs, dual
