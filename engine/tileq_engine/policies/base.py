"""The engines on which an order policy can stand."""

from __future__ import annotations

__all__ = ["base_policy"]

from collections.abc import Callable
from typing import Any

from tileq_engine.policies.sarathi import sarathi
from tileq_engine.policies.vllm import vllm_v0, vllm_v1
from tileq_engine.policy import Policy
from tileq_theory.errors import InputError, near_matches

_BASES: dict[str, Callable[..., Policy]] = {"sarathi": sarathi, "vllm_v0": vllm_v0, "vllm_v1": vllm_v1}


def base_policy(name: str, **settings: Any) -> Policy:
    """Return the policy whose batching an order policy uses."""
    if name not in _BASES:
        raise InputError(f"base {name!r} is unknown; {near_matches('bases', str(name), _BASES)}")
    return _BASES[name](**settings)
