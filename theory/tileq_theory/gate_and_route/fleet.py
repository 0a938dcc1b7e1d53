"""A GPU of the fleet and the service rates of the request classes on it."""

from __future__ import annotations

__all__ = ["ClassArray", "Fleet", "ServiceRates", "per_class", "service_rates"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive, positive_int

ClassArray = Float[np.ndarray, "class"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """A GPU of the fleet.

    Parameters
    ----------
    alpha_s, beta_s
        Mixed iteration: tau = alpha + beta C, seconds and seconds a token, each 0 or more, tau above 0.
    chunk_tokens
        C, prefill tokens of a mixed iteration.
    max_sequences
        B, whole, at least 1: sequences of an iteration, the prefill included.
    solo_tokens_per_s
        gamma, tokens per second of each decode on a solo GPU.
    """

    alpha_s: float
    beta_s: float
    chunk_tokens: float
    max_sequences: int
    solo_tokens_per_s: float

    def __post_init__(self) -> None:
        for name in ("alpha_s", "beta_s"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        for name in ("chunk_tokens", "solo_tokens_per_s"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "max_sequences", positive_int("max_sequences", self.max_sequences))
        positive("alpha_s + beta_s * chunk_tokens", self.mixed_iteration_s)

    @property
    def mixed_iteration_s(self) -> float:
        """tau = alpha + beta C, seconds."""
        return self.alpha_s + self.beta_s * self.chunk_tokens


@dataclass(frozen=True, slots=True)
class ServiceRates:
    """mu_p (prefill, mixed GPU), mu_m (decode, mixed GPU), mu_s (decode, solo GPU), requests per second."""

    prefill: ClassArray
    mixed: ClassArray
    solo: ClassArray


def service_rates(fleet: Fleet, prompts_tokens: Sequence[float], outputs_tokens: Sequence[float]) -> ServiceRates:
    """Return mu_p = C/(P tau), mu_m = 1/(D tau), mu_s = gamma/D, requests per second of one GPU or one slot.

    Examples
    --------
    >>> fleet = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=16, solo_tokens_per_s=45.45)
    >>> service_rates(fleet, [300], [1000]).solo.round(6).tolist()
    [0.04545]
    """
    prompts = np.array([positive(f"prompts_tokens[{i}]", x) for i, x in enumerate(prompts_tokens)], dtype=float)
    outputs = np.array([positive(f"outputs_tokens[{i}]", x) for i, x in enumerate(outputs_tokens)], dtype=float)
    if prompts.size != outputs.size or not prompts.size:
        raise InputError(f"{prompts.size} prompts and {outputs.size} outputs given; expected as many, at least one")
    tau = fleet.mixed_iteration_s
    return ServiceRates(fleet.chunk_tokens / (prompts * tau), 1 / (outputs * tau), fleet.solo_tokens_per_s / outputs)


def per_class(name: str, values: Sequence[float], count: int) -> ClassArray:
    """Return one number of 0 or more for each class, else raise `InputError` naming the entry."""
    if len(values) != count:
        raise InputError(f"{name} has {len(values)} entries; expected one for each of {count} classes")
    return np.array([nonnegative(f"{name}[{i}]", value) for i, value in enumerate(values)], dtype=float)
