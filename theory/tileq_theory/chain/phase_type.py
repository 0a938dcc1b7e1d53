r"""Discrete phase-type laws: a number of decode steps that a small Markov chain counts.

A request starts in phase j with probability start_j, or needs no step at all with the probability that is missing from
the sum of `start`. In each step phase i moves to phase j with probability transition_ij and ends with what is missing
from row i. With T the transition matrix and 1 the vector of ones,

    P(D > k) = start T^k 1,   E[D] = start (I - T)^{-1} 1,   E[D (D - 1)] = 2 start T (I - T)^{-2} 1
"""

from __future__ import annotations

__all__ = ["DiscretePhaseType", "decode_phases"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError
from tileq_theory.lengths import Geometric, LengthLaw

_ROUNDING = 1e-12
_MOST_PHASES = 64  # the chain's states grow as a binomial coefficient in the phases


@dataclass(frozen=True, slots=True, eq=False)
class DiscretePhaseType:
    """Law of a whole number of decode steps, D >= 0.

    Parameters
    ----------
    start
        Probability of starting in each phase; what is missing to 1 is P(D = 0).
    transition
        T, probability of moving from phase i to phase j in a step; what is missing in a row ends the request.

    Raises
    ------
    InputError
        A negative probability, a sum above 1, shapes that do not match, or a phase that can never end.

    Examples
    --------
    >>> DiscretePhaseType.geometric(mean=4.0).mean()
    4.0
    >>> fixed = DiscretePhaseType(start=np.array([1.0, 0.0]), transition=np.array([[0.0, 1.0], [0.0, 0.0]]))
    >>> fixed.mean(), fixed.variance()
    (2.0, 0.0)
    """

    start: Float[np.ndarray, "phase"]
    transition: Float[np.ndarray, "phase phase"]

    def __post_init__(self) -> None:
        start, transition = np.array(self.start, dtype=float), np.array(self.transition, dtype=float)
        if start.ndim != 1 or transition.shape != (start.size, start.size):
            raise InputError(
                f"start has shape {start.shape} and transition {transition.shape}; expected (k,) and (k, k)"
            )
        _shares("start", start[None, :])
        _shares("transition", transition)
        if start.size and np.max(np.abs(np.linalg.eigvals(transition))) >= 1 - _ROUNDING:
            raise InputError(
                "transition has a phase that never ends (spectral radius 1); expected a mean that is finite"
            )
        object.__setattr__(self, "start", np.clip(start, 0.0, 1.0))
        object.__setattr__(self, "transition", np.clip(transition, 0.0, 1.0))

    @classmethod
    def geometric(cls, mean: float) -> DiscretePhaseType:
        """Return the geometric law on {1, 2, ...} with this mean (1 or more), one phase."""
        law = Geometric(mean=mean)
        return cls(start=np.array([1.0]), transition=np.array([[float(np.exp(law.log_q))]]))

    @property
    def phases(self) -> int:
        """Number of phases."""
        return int(self.start.size)

    @property
    def zero_share(self) -> float:
        """P(D = 0)."""
        return max(1.0 - float(self.start.sum()), 0.0)

    @property
    def exits(self) -> Float[np.ndarray, "phase"]:
        """Probability that a step in each phase is the last."""
        exits: Float[np.ndarray, "phase"] = np.clip(1.0 - self.transition.sum(axis=1), 0.0, 1.0)
        return exits

    def mean(self) -> float:
        """Return E[D], steps."""
        return float(self.start @ self._visits())

    def variance(self) -> float:
        """Return Var D, steps squared."""
        visits = self._visits()
        again = np.linalg.solve(np.eye(self.phases) - self.transition, self.transition @ visits)
        return max(2 * float(self.start @ again) + self.mean() - self.mean() ** 2, 0.0)

    def after_one_step(self) -> DiscretePhaseType:
        """Return the law of max(D - 1, 0): the first step is taken elsewhere (the prefill emits the first token)."""
        return DiscretePhaseType(self.start @ self.transition, self.transition)

    def _visits(self) -> Float[np.ndarray, "phase"]:
        if not self.phases:
            return np.zeros(0)
        solution: Float[np.ndarray, "phase"] = np.linalg.solve(
            np.eye(self.phases) - self.transition, np.ones(self.phases)
        )
        return solution


def _shares(name: str, rows: Float[np.ndarray, "row column"]) -> None:
    """Refuse anything but rows of probabilities that sum to 1 or less."""
    if not np.all(np.isfinite(rows)) or np.any(rows < 0) or np.any(rows.sum(axis=1) > 1 + _ROUNDING):
        raise InputError(f"{name} is {rows.tolist()}; expected rows of numbers of 0 or more with sums of at most 1")


def decode_phases(outputs: DiscretePhaseType | LengthLaw, convention: TokenConvention = "engine") -> DiscretePhaseType:
    """Return the phases of the decode steps D of a request with output law O.

    Parameters
    ----------
    outputs
        O: a phase-type law, an uncapped `Geometric` (one phase), or any law with at most 64 tokens (a phase a token,
        with its hazard rates).
    convention
        "engine": D = O - 1, the prefill emits the first token; "paper": D = O.

    Raises
    ------
    InputError
        A law without few phases (longer than 64 tokens and not geometric), or an unknown convention.

    Examples
    --------
    >>> round(decode_phases(Geometric(mean=5.0)).mean(), 12)
    4.0
    """
    if convention not in ("engine", "paper"):
        raise InputError(f"token convention is {convention!r}; expected 'engine' or 'paper'")
    law = outputs if isinstance(outputs, DiscretePhaseType) else _phases_of(outputs)
    if law.zero_share > _ROUNDING:
        raise InputError(f"outputs has P(O = 0) = {law.zero_share:.6g}; expected at least one output token")
    return law.after_one_step() if convention == "engine" else law


def _phases_of(law: LengthLaw) -> DiscretePhaseType:
    if isinstance(law, Geometric) and law.cap is None:
        return DiscretePhaseType(np.array([1.0]), np.array([[float(np.exp(law.log_q))]]))
    if law.longest > _MOST_PHASES:
        raise InputError(
            f"output law {law.describe()} has up to {law.longest:g} tokens; expected a geometric law, a "
            f"DiscretePhaseType, or at most {_MOST_PHASES} tokens (the chain keeps a phase for each)"
        )
    longest = int(law.longest)
    alive = law.survival(np.arange(longest + 1, dtype=float))
    going = np.divide(alive[1:], alive[:-1], out=np.zeros(longest), where=alive[:-1] > 0)
    return DiscretePhaseType(np.eye(longest)[0], np.diag(going[:-1], k=1))
