"""Linear iteration times of exclusive batching, and the two checks its functions share."""

from __future__ import annotations

__all__ = ["BatchingCosts", "fraction", "probability"]

from dataclasses import dataclass

from tileq_theory.errors import InputError, finite, nonnegative, positive


@dataclass(frozen=True, slots=True)
class BatchingCosts:
    """Linear times of the two kinds of iteration, and of a mixed one.

    Parameters
    ----------
    alpha_p_s, beta_p_s
        Prefill phase: fixed seconds, seconds a token.
    alpha_d_s, beta_d_s
        Decode iteration: fixed seconds (above 0), seconds a sequence.
    """

    alpha_p_s: float
    alpha_d_s: float
    beta_p_s: float = 0.0
    beta_d_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha_d_s", positive("alpha_d_s", self.alpha_d_s))
        for name in ("alpha_p_s", "beta_p_s", "beta_d_s"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))


def probability(value: float) -> float:
    """Return a completion probability in (0, 1], else raise `InputError`."""
    p0 = finite("completion_probability", value)
    if not 0 < p0 <= 1:
        raise InputError(f"completion_probability is {value!r}; expected a probability in (0, 1]")
    return p0


def fraction(value: float) -> float:
    """Return a threshold over slots in (0, 1), else raise `InputError`."""
    share = finite("theta", value)
    if not 0 < share < 1:
        raise InputError(f"theta is {value!r}; expected a fraction in (0, 1)")
    return share
