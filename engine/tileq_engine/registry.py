"""The policies by name: one line each; a policy lives in one file of `tileq_engine.policies`."""

from __future__ import annotations

__all__ = ["policy", "policy_doc", "policy_maker", "policy_names"]

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from tileq_engine.policy import Policy
from tileq_theory.errors import InputError, near_matches

_HOMES: dict[str, str] = {
    "static": "static",
    "orca": "orca",
    "vllm_v0": "vllm",
    "vllm_v1": "vllm",
    "sarathi": "sarathi",
    "sglang": "sglang",
    "sjf": "sjf",
    "svf": "svf",
    "priority": "priority",
    "aging": "aging",
    "rad": "rad",
    "rad_general": "rad_general",
    "slai": "slai",
    "wait": "wait",
    "nested_wait": "wait",
    "theta": "threshold",
    "eb_plus": "threshold",
    "psjf": "smallest",
    "srpt": "smallest",
    "vtc": "vtc",
    "priority_aging": "due",
    "edf": "due",
}


def policy_names() -> tuple[str, ...]:
    """Return the names of every policy.

    Examples
    --------
    >>> "sarathi" in policy_names()
    True
    """
    return tuple(_HOMES)


def policy_maker(name: str) -> Callable[..., Policy]:
    """Return the function that makes the policy `name`; its parameters are the policy's settings."""
    if name not in _HOMES:
        raise InputError(f"policy {name!r} is unknown; {near_matches('policies', str(name), _HOMES)}")
    made: Callable[..., Policy] = getattr(importlib.import_module(f"tileq_engine.policies.{_HOMES[name]}"), name)
    return made


def policy(name: str, **params: Any) -> Policy:
    """Return the policy `name` with the given parameters.

    Beside a policy's own, every policy takes token_budget, max_num_seqs (the engine's unless given) and
    tenant_quota, the most requests that one tenant may have active (`Policy.with_tenant_quota`).

    Raises
    ------
    InputError
        When the name or a parameter is unknown, or a parameter's value is out of its domain.

    Examples
    --------
    >>> policy("sarathi", token_budget=512).token_budget
    512
    """
    maker = policy_maker(name)
    quota = params.pop("tenant_quota", None)
    known = inspect.signature(inspect.unwrap(maker)).parameters
    for given in params:
        if given not in known:
            named = [*known, "tenant_quota"]
            raise InputError(f"policy {name} has no parameter {given!r}; {near_matches('parameters', given, named)}")
    made = maker(**params)
    return made if quota is None else made.with_tenant_quota(quota)


def policy_doc(name: str) -> str:
    """Return the paragraph on `name`: its rule, its source, what it optimises, when it fails."""
    return inspect.getdoc(inspect.unwrap(policy_maker(name))) or ""
