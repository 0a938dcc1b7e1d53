"""What the exact chain answers."""

from __future__ import annotations

__all__ = ["ChainAnswer"]

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.drift import Saturation
from tileq_theory.chain.kernel import Kernel
from tileq_theory.chain.system import ChainSystem
from tileq_theory.chain.tail import TailBound
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class ChainAnswer:
    """Stationary means and laws over time (not at iteration boundaries only).

    Parameters
    ----------
    rate_per_s
        lambda.
    capacity_per_s
        lambda* of the policy by mean drift; load = lambda/lambda*. inf with a finite waiting room: always stable.
    load
        lambda/lambda*.
    mean_in_system, mean_waiting, mean_decoding
        Time means of requests in the system, waiting to be taken in, decoding.
    mean_wait_s
        Mean time from arrival to the start of the iteration that prefills the request.
    mean_ttft_s
        Mean time to first token: end of the prefill (engine convention), end of the first decode step (paper).
    mean_response_s
        Mean time from arrival to the last token (of the requests that are not lost).
    wait_variance_s2
        Variance of the wait by the distributional form of Little's law; nan with a finite waiting room.
    idle_share
        Share of time with nobody in the system.
    loss
        Share of arrivals lost to a full room (0 with an unlimited one).
    in_system_law, waiting_law
        P(N = n) and P(waiting = n) over time.
    lost_tail
        Proved bound on the probability, at iteration boundaries, of the levels left out (0 with a finite room).
    states
        Number of states whose probability was computed.
    residual
        |pi - pi P|_1 of the law found, at iteration boundaries.
    method
        "matrix-analytic" (small chains), "truncated" (sparse, large ones) or "finite" (a finite waiting room).
    """

    rate_per_s: float
    capacity_per_s: float
    load: float
    mean_in_system: float
    mean_waiting: float
    mean_decoding: float
    mean_wait_s: float
    mean_ttft_s: float
    mean_response_s: float
    wait_variance_s2: float
    idle_share: float
    loss: float
    in_system_law: Float[np.ndarray, "in_system"] = field(repr=False)
    waiting_law: Float[np.ndarray, "waiting"] = field(repr=False)
    lost_tail: float
    states: int
    residual: float
    method: str
    system: ChainSystem = field(repr=False)
    kernel: Kernel = field(repr=False)
    boundary_law: Float[np.ndarray, "level phase"] = field(repr=False)
    saturated: Saturation | None = field(repr=False)
    tail: TailBound | None = field(repr=False)

    def in_system_quantile(self, probability: float) -> int:
        """Return the smallest n with P(N <= n) >= probability."""
        return _quantile(self.in_system_law, probability)

    def waiting_quantile(self, probability: float) -> int:
        """Return the smallest n with P(waiting <= n) >= probability."""
        return _quantile(self.waiting_law, probability)

    def to_dict(self) -> dict[str, object]:
        """Return the numbers as plain data, without the laws."""
        skipped = {"in_system_law", "waiting_law", "system", "kernel", "boundary_law", "saturated", "tail"}
        values = {name: getattr(self, name) for name in self.__slots__ if name not in skipped}
        return {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in values.items()}


def _quantile(law: np.ndarray, probability: float) -> int:
    if not 0 < probability < 1:
        raise InputError(f"probability is {probability!r}; expected a number strictly between 0 and 1")
    return int(np.searchsorted(np.cumsum(law), probability))
