"""A plan's document as a scheduler reads it: everything it looks at is there, and is what it should be."""

from __future__ import annotations

__all__ = ["checked_plan", "iteration_time_of"]

from collections.abc import Mapping
from typing import Any

from tileq_theory.errors import InputError, finite, nonnegative, positive, positive_int
from tileq_theory.iteration_time import IterationTime

_NEEDED = ("token_budget", "max_num_seqs", "iteration_time", "rate_per_s")
_TIMES = ("launch_s", "weight_floor_s", "tile_s", "tile_tokens", "token_s", "pair_s", "kv_token_s", "sequence_s")
_SHAPE = ("layers", "hidden", "heads", "vocab")
_DEMAND = ("prefill_tokens", "decode_tokens")
_ATTENTION = ("attention_pairs", "kv_read_tokens")


def checked_plan(plan: Any) -> Mapping[str, Any]:
    """Return `plan` where it is a document of `tileq plan --engine vllm --json`; raise `InputError` else.

    Only what a scheduler looks at is asked for; a key that it can do without may be left out, or be null.

    Examples
    --------
    >>> checked_plan({"token_budget": 64, "max_num_seqs": 8, "rate_per_s": -1, "iteration_time": {"token_s": 1e-5}})
    Traceback (most recent call last):
        ...
    tileq_theory.errors.InputError: rate_per_s of the plan is -1; expected a number that is 0 or more
    """
    lacking = list(_NEEDED) if not isinstance(plan, Mapping) else [n for n in _NEEDED if plan.get(n) is None]
    if lacking:
        raise InputError(f"plan is no document of `tileq plan --json`: {', '.join(lacking)} lack")
    if plan.get("engine", "vllm") != "vllm":
        raise InputError(f"the plan was made for {plan['engine']}; make one with --engine vllm")
    positive_int("token_budget of the plan", plan["token_budget"])
    nonnegative("rate_per_s of the plan", plan["rate_per_s"])
    for name in ("max_num_seqs", "tp"):
        if plan.get(name) is not None:
            positive_int(f"{name} of the plan", plan[name])
    if plan.get("kv_tokens") is not None:
        nonnegative("kv_tokens of the plan", plan["kv_tokens"])
    _check_machine(plan)
    _check_levels(plan)
    _check_demand(plan)
    iteration_time_of(plan)
    return plan


def iteration_time_of(plan: Mapping[str, Any]) -> IterationTime:
    """Return the plan's iteration time."""
    given = _object(plan, "iteration_time")
    known = {name: given[name] for name in _TIMES if name in given}
    if not known:
        raise InputError(f"iteration_time of the plan is {given!r}; expected seconds, as launch_s and token_s")
    try:
        return IterationTime(**known)
    except InputError as error:
        raise InputError(f"iteration_time of the plan: {error}") from None


def _check_machine(plan: Mapping[str, Any]) -> None:
    model = _object(plan, "model")
    for name in _SHAPE:
        if model.get(name) is not None:
            positive_int(f"{name} of the plan's model", model[name])
    if not isinstance(plan.get("gpu"), str):
        _object(plan, "gpu")


def _check_levels(plan: Mapping[str, Any]) -> None:
    for name, value in _object(plan, "elasticities").items():
        if name in ("kv_tokens", "max_num_seqs"):
            finite(f"elasticity {name} of the plan", value)
    levels = plan.get("levels") or []
    if not isinstance(levels, list) or not all(isinstance(level, Mapping) for level in levels):
        raise InputError(f"levels of the plan are {levels!r}; expected a list of objects")
    for level in levels:
        positive("tokens of a level of the plan", _given(level, "tokens", "a level"))
        for name in ("prefill_tokens", "decode_tokens", "iterations_per_s"):
            nonnegative(f"{name} of a level of the plan", _given(level, name, "a level"))


def _check_demand(plan: Mapping[str, Any]) -> None:
    workload = _object(plan, "workload")
    if "demand" in workload:
        demand = _object(workload, "demand")
        for name in _DEMAND:
            nonnegative(f"{name} of the plan's demand", _given(demand, name, "the demand"))
        for name in _ATTENTION:
            nonnegative(f"{name} of the plan's demand", demand.get(name, 0.0))


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object `name`; an empty one where it is left out or null."""
    found = document.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InputError(f"{name} of the plan is {found!r}; expected an object")
    return found


def _given(document: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in document:
        raise InputError(f"the plan is incomplete: {where} has no {name}; make one with tileq plan --engine vllm")
    return document[name]
