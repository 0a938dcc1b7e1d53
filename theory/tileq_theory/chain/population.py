"""What one iteration does to the residents: who steps, who leaves, who joins."""

from __future__ import annotations

__all__ = ["Population"]

import math
from functools import cache

import numpy as np

from tileq_theory.chain.phase_type import DiscretePhaseType

Counts = tuple[int, ...]
Law = dict[Counts, float]
_LEAST = 1e-25  # far below rounding: what is dropped changes no sum


class Population:
    """Laws of the residents' counts (decoding requests in each phase) after an iteration.

    Each resident and each newcomer moves on its own, so the law of the counts is a product of multinomials: the
    coefficients of (exit_1 + T_11 x_1 + ...)^k_1 ... (zero + start_1 x_1 + ...)^a.
    """

    def __init__(self, decodes: DiscretePhaseType) -> None:
        self.phases = decodes.phases
        exits = decodes.exits
        self._steps = [_terms(float(exits[i]), decodes.transition[i]) for i in range(self.phases)]
        self._joins = _terms(decodes.zero_share, decodes.start)
        # geometric outputs: whether the prefill or a decode emits the token, the request goes on with one probability
        step, join = self._steps[0] if self._steps else {}, self._joins
        self._one_move = self.phases == 1 and all(math.isclose(step.get(k, 0), join.get(k, 0)) for k in {*step, *join})
        self._power = cache(self._raise)
        self.after = cache(self._after)

    @property
    def nobody(self) -> Counts:
        """Nobody decodes."""
        return (0,) * self.phases

    def alike(self, counts: Counts, joining: int, stepping: bool) -> tuple[Counts, int, bool]:
        """Return what stands for all arguments of `after` with the same law."""
        if stepping and self._one_move:
            return (counts[0] + joining,), 0, True
        return counts, joining, stepping

    def _after(self, counts: Counts, joining: int, stepping: bool) -> tuple[tuple[Counts, float], ...]:
        """Return the law of the counts after an iteration with `joining` prefills in which residents step or do not."""
        law = self._power(-1, joining)
        for phase, count in enumerate(counts):
            if count:
                one = self._power(phase, count) if stepping else {_unit(self.phases, phase, count): 1.0}
                law = _product(law, one)
        return tuple(sorted(law.items()))

    def _raise(self, phase: int, count: int) -> Law:
        """Return the law of `count` independent moves of one kind (-1: joining)."""
        terms = self._joins if phase < 0 else self._steps[phase]
        if len(terms) <= 2:  # binomial: exact to rounding, without convolutions
            return _binomial(terms, count, self.phases)
        return {self.nobody: 1.0} if count == 0 else _product(self._power(phase, count - 1), terms)


def _terms(none: float, row: np.ndarray) -> Law:
    """Return the law of one move as counts."""
    size = len(row)
    law = {_unit(size, j, 1): float(p) for j, p in enumerate(row) if p > 0}
    if none > 0 or not law:
        law[(0,) * size] = none
    return law


def _unit(size: int, phase: int, count: int) -> Counts:
    return tuple(count if j == phase else 0 for j in range(size))


def _binomial(terms: Law, count: int, phases: int) -> Law:
    """Return the law of a sum of independent moves with at most two outcomes."""
    if len(terms) == 1:
        (only,) = terms
        return {tuple(count * c for c in only): 1.0}
    (first, p), (second, q) = terms.items()
    law: Law = {}
    for k in range(count + 1):
        log = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        mass = math.exp(log + k * math.log(p) + (count - k) * math.log(q))
        if mass > _LEAST:
            law[tuple(k * first[j] + (count - k) * second[j] for j in range(phases))] = mass
    return law


def _product(one: Law, other: Law) -> Law:
    law: Law = {}
    for a, p in one.items():
        for b, q in other.items():
            key = tuple(map(sum, zip(a, b, strict=True)))
            law[key] = law.get(key, 0.0) + p * q
    return law
