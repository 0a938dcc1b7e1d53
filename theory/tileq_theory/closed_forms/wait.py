r"""WAIT's fluid equilibrium: an iteration takes d0 + d1*(KV of everything scheduled), prompts in prefill included.

A type-j request (prompt l, output l', rate lambda_j) takes part in l' + 1 iterations: its prefill, counted with l
tokens, and l' decodes with l + 1, ..., l + l'. Its KV summed over them is

    v_j = (l' + 1)(l + l'/2),         S = sum_j lambda_j v_j        (tokens)

The memory M* and the iteration DeltaT* of the equilibrium solve M = DeltaT S and DeltaT = d0 + d1 M:

    M* = d0 S/(1 - d1 S),   DeltaT* = d0/(1 - d1 S),   n*_j = lambda_j DeltaT*   (requests of each stage)

It fits in a memory of C tokens, M* <= C, exactly when S <= C/(d0 + d1 C).
"""

from __future__ import annotations

__all__ = [
    "FORMS",
    "WAIT_CAPACITY",
    "WAIT_ITERATION",
    "WAIT_MEMORY",
    "WAIT_THRESHOLD",
    "WAIT_VOLUME",
    "WaitFluid",
    "wait_fluid",
]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import RATE
from tileq_theory.errors import InputError, nonnegative, positive

_SOURCE = "Ao, Luo, Simchi-Levi, Wang, arXiv 2504.11320, fluid equilibrium"
_D0 = Quantity("d0_s", "d_0", "fixed time of an iteration", "s")
_D1 = Quantity("d1_s", "d_1", "time of a scheduled KV token", "s/token", "nonnegative")
_S = Quantity("kv_load", "S", "KV token iterations that arrive per second", "token iterations/s")
_C = Quantity("kv_capacity_tokens", "C", "KV tokens that fit in memory", "tokens")
_L = Quantity("prompt_tokens", "l", "prompt", "tokens")
_LP = Quantity("output_tokens", "l'", "output", "tokens", "nonnegative")


def _volume(v: Mapping[str, Any]) -> Any:
    return (v["output_tokens"] + 1) * (v["prompt_tokens"] + v["output_tokens"] / 2)


def _largest_load(v: Mapping[str, Any]) -> Any:
    return v["kv_capacity_tokens"] / (v["d0_s"] + v["d1_s"] * v["kv_capacity_tokens"])


_EQUILIBRIUM = Condition(lambda v: 1 - v["d1_s"] * v["kv_load"], "d1_s * kv_load < 1 (else no equilibrium exists)")

WAIT_VOLUME = ClosedForm(
    "wait_volume",
    "KV of a request summed over its iterations",
    _SOURCE,
    "token iterations",
    (_L, _LP),
    _volume,
)
WAIT_MEMORY = ClosedForm(
    "wait_memory",
    "equilibrium KV in memory, M*",
    _SOURCE,
    "tokens",
    (_D0, _D1, _S),
    lambda v: v["d0_s"] * v["kv_load"] / (1 - v["d1_s"] * v["kv_load"]),
    (_EQUILIBRIUM,),
)
WAIT_ITERATION = ClosedForm(
    "wait_iteration",
    "equilibrium time of an iteration, DeltaT*",
    _SOURCE,
    "s",
    (_D0, _D1, _S),
    lambda v: v["d0_s"] / (1 - v["d1_s"] * v["kv_load"]),
    (_EQUILIBRIUM,),
)
WAIT_THRESHOLD = ClosedForm(
    "wait_threshold",
    "equilibrium requests of a type in each stage, n*: the threshold of WAIT",
    _SOURCE,
    "requests",
    (RATE, _D0, _D1, _S),
    lambda v: v["rate_per_s"] * v["d0_s"] / (1 - v["d1_s"] * v["kv_load"]),
    (_EQUILIBRIUM,),
)
WAIT_CAPACITY = ClosedForm(
    "wait_capacity",
    "largest rate of one type whose equilibrium fits in memory",
    f"{_SOURCE}: S <= C/(d0 + d1 C)",
    "1/s",
    (_L, _LP, _C, _D0, _D1),
    lambda v: _largest_load(v) / _volume(v),
)
FORMS = (WAIT_VOLUME, WAIT_MEMORY, WAIT_ITERATION, WAIT_THRESHOLD, WAIT_CAPACITY)


@dataclass(frozen=True, slots=True)
class WaitFluid:
    """WAIT's equilibrium for several types.

    Parameters
    ----------
    kv_load
        S, KV token iterations that arrive per second.
    memory_tokens, iteration_s
        M* (tokens) and DeltaT* (s); inf when d1 S >= 1, where no equilibrium exists.
    stage_requests
        n*_j: requests of type j in each of its stages (inf where no equilibrium exists).
    largest_kv_load
        C/(d0 + d1 C), the S at which M* = C.
    """

    kv_load: float
    memory_tokens: float
    iteration_s: float
    stage_requests: tuple[float, ...]
    largest_kv_load: float

    @property
    def fits(self) -> bool:
        """True when M* <= C: the fluid system is stable."""
        return self.kv_load <= self.largest_kv_load

    @property
    def headroom(self) -> float:
        """Factor by which all rates together may grow until M* = C (inf when nothing arrives)."""
        return self.largest_kv_load / self.kv_load if self.kv_load > 0 else math.inf

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Whole thresholds of WAIT: ceil(n*_j), at least 1, the fewest requests of a type worth an iteration."""
        if not math.isfinite(self.iteration_s):
            raise InputError(
                f"d1 * S is at least 1 at S = {self.kv_load:.6g}, so no equilibrium exists; lower the rates"
            )
        return tuple(max(1, math.ceil(n)) for n in self.stage_requests)


def wait_fluid(
    *,
    rates_per_s: Sequence[float],
    prompts_tokens: Sequence[float],
    outputs_tokens: Sequence[float],
    d0_s: float,
    d1_s: float,
    kv_capacity_tokens: float,
) -> WaitFluid:
    r"""Return WAIT's fluid equilibrium of several types.

    S = sum_j lambda_j (l'_j + 1)(l_j + l'_j/2),   M* = d0 S/(1 - d1 S),
    DeltaT* = d0/(1 - d1 S),   n*_j = lambda_j DeltaT*.

    Parameters
    ----------
    rates_per_s, prompts_tokens, outputs_tokens
        lambda_j >= 0, l_j > 0, l'_j >= 0: one number a type.
    d0_s, d1_s
        d0 > 0 (s) and d1 >= 0 (s per scheduled KV token).
    kv_capacity_tokens
        C > 0, tokens.

    Raises
    ------
    InputError
        Lists of different lengths, an empty list, or a number outside its domain.

    References
    ----------
    Ao, Luo, Simchi-Levi, Wang, arXiv 2504.11320.

    Examples
    --------
    >>> fluid = wait_fluid(rates_per_s=[1.0], prompts_tokens=[100], outputs_tokens=[200], d0_s=0.01, d1_s=1e-6,
    ...                    kv_capacity_tokens=20000)
    >>> fluid.kv_load, round(fluid.memory_tokens, 3), fluid.thresholds, fluid.fits
    (40200.0, 418.837, (1,), True)
    """
    if not len(rates_per_s) == len(prompts_tokens) == len(outputs_tokens) or not len(rates_per_s):
        raise InputError(
            f"{len(rates_per_s)} rates, {len(prompts_tokens)} prompts and {len(outputs_tokens)} outputs given; "
            "expected as many of each, at least one"
        )
    rates = [nonnegative(f"rates_per_s[{j}]", x) for j, x in enumerate(rates_per_s)]
    prompts = [positive(f"prompts_tokens[{j}]", x) for j, x in enumerate(prompts_tokens)]
    outputs = [nonnegative(f"outputs_tokens[{j}]", x) for j, x in enumerate(outputs_tokens)]
    d0, d1 = positive("d0_s", d0_s), nonnegative("d1_s", d1_s)
    memory = positive("kv_capacity_tokens", kv_capacity_tokens)
    load = math.fsum(r * (o + 1) * (p + o / 2) for r, p, o in zip(rates, prompts, outputs, strict=True))
    slack = 1 - d1 * load
    iteration = d0 / slack if slack > 0 else math.inf
    stages = tuple(0.0 if r == 0 else r * iteration for r in rates)
    return WaitFluid(load, iteration * load if load > 0 else 0.0, iteration, stages, memory / (d0 + d1 * memory))
