r"""Nie et al.: memory-time. A request of prompt s and output o holds, over its iterations,

    g(s, o) = ((1 + s/s^) s + 2 o s + (1 + o) o) / 2

KV tokens (chunks of s^: s^, 2s^, ..., s; then s + 1, ..., s + o), a node offers M per iteration of b-bar seconds:

    lambda* = R M / (b-bar E[g])                          necessary
    lambda  < (1 - delta) lambda*                         sufficient, delta = ess sup(s + o)/M

g is a quadratic in (s, o), so E[g] needs two moments of each length and E[s o]; the three laws below give them in
closed form (independent lengths). Chunk counting is the source's fluid s/s^.
"""

from __future__ import annotations

__all__ = [
    "FORMS",
    "NIE_CAPACITY",
    "NIE_MEAN_G",
    "NIE_MEAN_G_FIXED",
    "NIE_MEAN_G_GEOMETRIC",
    "NIE_MEAN_G_UNIFORM",
    "NIE_SUFFICIENT",
]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import CHUNK_TOKENS, KV_CAPACITY, MEMORY_ITERATIONS, NODES

_SOURCE = "Nie, Si, Zhou, ICML 2026, arXiv 2605.04595"
_BATCH_S = Quantity("batch_s", r"\bar b", "representative time of an iteration", "s")
_LONGEST = Quantity("longest_tokens", r"\mathrm{ess\,sup}(s+o)", "longest context of a request", "tokens")
_S1 = Quantity("prompt_mean", "E[s]", "mean prompt", "tokens", "nonnegative")
_S2 = Quantity("prompt_second", "E[s^2]", "second moment of the prompt", "tokens^2", "nonnegative")
_O1 = Quantity("output_mean", "E[o]", "mean output", "tokens", "nonnegative")
_O2 = Quantity("output_second", "E[o^2]", "second moment of the output", "tokens^2", "nonnegative")
_SO = Quantity("cross", "E[so]", "mean product of prompt and output", "tokens^2", "nonnegative")
_PL = Quantity("prompt_low", "s_1", "shortest prompt", "tokens", "whole")
_PH = Quantity("prompt_high", "s_2", "longest prompt", "tokens", "whole")
_OL = Quantity("output_low", "o_1", "shortest output", "tokens", "whole")
_OH = Quantity("output_high", "o_2", "longest output", "tokens", "whole")
_PROMPT = Quantity("prompt_tokens", "s", "prompt", "tokens", "nonnegative")
_OUTPUT = Quantity("output_tokens", "o", "output", "tokens", "nonnegative")
_PM = Quantity("prompt_mean", "m_s", "mean of the geometric prompt on 1, 2, ... (at least 1)", "tokens")
_OM = Quantity("output_mean", "m_o", "mean of the geometric output on 1, 2, ... (at least 1)", "tokens")


def _volume(s1: Any, s2: Any, o1: Any, o2: Any, so: Any, chunk: Any) -> Any:
    """Return E[g] from the moments."""
    return (s1 + s2 / chunk + 2 * so + o1 + o2) / 2


def _uniform_second(low: Any, high: Any) -> Any:
    """Second moment of a whole number uniform on low..high."""
    return (2 * high**2 + 2 * low * high + 2 * low**2 + high - low) / 6


def _mean_g(v: Mapping[str, Any]) -> Any:
    moments = (v["prompt_mean"], v["prompt_second"], v["output_mean"], v["output_second"], v["cross"])
    return _volume(*moments, v["chunk_tokens"])


def _fixed(v: Mapping[str, Any]) -> Any:
    s, o = v["prompt_tokens"], v["output_tokens"]
    return _volume(s, s**2, o, o**2, s * o, v["chunk_tokens"])


def _uniform(v: Mapping[str, Any]) -> Any:
    s1, o1 = (v["prompt_low"] + v["prompt_high"]) / 2, (v["output_low"] + v["output_high"]) / 2
    s2 = _uniform_second(v["prompt_low"], v["prompt_high"])
    return _volume(s1, s2, o1, _uniform_second(v["output_low"], v["output_high"]), s1 * o1, v["chunk_tokens"])


def _geometric(v: Mapping[str, Any]) -> Any:
    s, o = v["prompt_mean"], v["output_mean"]
    return _volume(s, 2 * s**2 - s, o, 2 * o**2 - o, s * o, v["chunk_tokens"])


def _capacity(v: Mapping[str, Any]) -> Any:
    return v["nodes"] * v["kv_capacity_tokens"] / (v["batch_s"] * v["memory_iterations"])


def _sufficient(v: Mapping[str, Any]) -> Any:
    return (1 - v["longest_tokens"] / v["kv_capacity_tokens"]) * _capacity(v)


def _ordered(length: str) -> Condition:
    return Condition(lambda v: v[f"{length}_high"] - v[f"{length}_low"], f"{length}_high >= {length}_low", strict=False)


def _at_least_one(name: str) -> Condition:
    return Condition(lambda v: v[name] - 1, f"{name} >= 1", strict=False)


_VOLUME_UNIT = "token iterations"

NIE_CAPACITY = ClosedForm(
    "nie_capacity",
    "largest rate that the memory-time of R nodes carries",
    f"{_SOURCE}, necessary condition",
    "1/s",
    (NODES, KV_CAPACITY, _BATCH_S, MEMORY_ITERATIONS),
    _capacity,
)
NIE_SUFFICIENT = ClosedForm(
    "nie_sufficient",
    "rate below which work-conserving policies are stable",
    f"{_SOURCE}, sufficient condition",
    "1/s",
    (NODES, KV_CAPACITY, _BATCH_S, MEMORY_ITERATIONS, _LONGEST),
    _sufficient,
    (Condition(lambda v: v["kv_capacity_tokens"] - v["longest_tokens"], "kv_capacity_tokens > longest_tokens"),),
)
NIE_MEAN_G = ClosedForm(
    "nie_mean_g",
    "memory-iterations of a request from the moments of its lengths",
    f"{_SOURCE}, g(s, o) averaged",
    _VOLUME_UNIT,
    (_S1, _S2, _O1, _O2, _SO, CHUNK_TOKENS),
    _mean_g,
)
NIE_MEAN_G_FIXED = ClosedForm(
    "nie_mean_g_fixed",
    "memory-iterations of one request",
    f"{_SOURCE}, g(s, o)",
    _VOLUME_UNIT,
    (_PROMPT, _OUTPUT, CHUNK_TOKENS),
    _fixed,
)
NIE_MEAN_G_UNIFORM = ClosedForm(
    "nie_mean_g_uniform",
    "memory-iterations for independent lengths, whole numbers uniform on low..high",
    f"{_SOURCE}, g(s, o) averaged",
    _VOLUME_UNIT,
    (_PL, _PH, _OL, _OH, CHUNK_TOKENS),
    _uniform,
    (_ordered("prompt"), _ordered("output")),
)
NIE_MEAN_G_GEOMETRIC = ClosedForm(
    "nie_mean_g_geometric",
    "memory-iterations for independent geometric lengths on 1, 2, ...",
    f"{_SOURCE}, g(s, o) averaged",
    _VOLUME_UNIT,
    (_PM, _OM, CHUNK_TOKENS),
    _geometric,
    (_at_least_one("prompt_mean"), _at_least_one("output_mean")),
)
FORMS = (
    NIE_CAPACITY,
    NIE_SUFFICIENT,
    NIE_MEAN_G,
    NIE_MEAN_G_FIXED,
    NIE_MEAN_G_UNIFORM,
    NIE_MEAN_G_GEOMETRIC,
)
