"""Policies as a command names them: `name:parameter=value:...`, several with commas between."""

from __future__ import annotations

__all__ = ["parse_policy", "policies_by_name"]

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq.planning import Plan
    from tileq_engine.policy import Policy

_TRUTHS = {"true": True, "false": False}
_FORM = "expected name:parameter=value"


def parse_policy(text: str | Policy, *, plan: Plan | None = None) -> Policy:
    """Return the policy of `name` or `name:parameter=value:...`, e.g. "slai:order=spf:theta=10"; an object as it is.

    A list is written with plus signs, "nested_wait:boundaries=8+64:thresholds=4+2+1", and the numbers of a level with
    slashes: "rad_general:levels=256/227/29/0.95+128/117/11/0.05" (tokens, prefill, decode, share). Without levels
    generalised RAD takes its own from the plan.

    Examples
    --------
    >>> parse_policy("sarathi:order=spf").params["order"]
    'spf'
    """
    from tileq_engine.policy import Policy
    from tileq_engine.registry import policy, policy_maker

    if isinstance(text, Policy):
        return text
    if not isinstance(text, str):
        raise InputError(f"policy is {text!r}; expected a name, name:parameter=value:..., or a Policy")
    name, *settings = text.split(":")
    name = name.strip().replace("-", "_")
    known = inspect.signature(inspect.unwrap(policy_maker(name))).parameters
    params: dict[str, Any] = {}
    for item in settings:
        key, value = _setting(text, item)
        if key in params:
            raise InputError(f"policy {text!r} gives {key} twice; expected every parameter once")
        params[key] = _value(key, value, known[key].default if key in known else None)
    if name == "rad_general" and not {"plan", "levels"} & params.keys():
        if plan is None:
            raise InputError("policy rad_general takes its tiles from a plan; give one, or levels")
        params["plan"] = plan.tile
    return policy(name, **params)


def _setting(text: str, item: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in item.partition("="))
    if not equals or not key or not value:
        raise InputError(f"policy {text!r} has the setting {item!r}; {_FORM}")
    return key.replace("-", "_"), value


def _value(key: str, text: str, default: Any) -> Any:
    """Return what `text` stands for; a parameter's default says whether it is a truth value, or may be none."""
    word = text.lower()
    if isinstance(default, bool):
        if word not in _TRUTHS:
            raise InputError(f"{key} is {text!r}; expected true or false")
        return _TRUTHS[word]
    if word == "none" and not isinstance(default, str):
        return None
    if "+" in text.strip("+") or text.endswith("+") or "/" in text:
        return tuple(_item(part) for part in text.split("+") if part)
    return _number(text)


def _item(text: str) -> Any:
    return tuple(_number(part) for part in text.split("/")) if "/" in text else _number(text)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _TRUTHS.get(text.lower(), text)


def policies_by_name(
    given: Sequence[str | Policy] | Mapping[str, str | Policy] | str | Policy, *, plan: Plan | None = None
) -> dict[str, Policy]:
    """Return name -> policy of a text with commas, of texts and policies, or of a mapping of names to either.

    Examples
    --------
    >>> list(policies_by_name("sarathi,slai:order=spf"))
    ['sarathi', 'slai:order=spf']
    """
    if isinstance(given, Mapping):
        found = [(str(name), item) for name, item in given.items()]
    else:
        items = given.split(",") if isinstance(given, str) else list(given) if hasattr(given, "__iter__") else [given]
        texts = [item.strip() if isinstance(item, str) else item for item in items]
        found = [(item if isinstance(item, str) else getattr(item, "name", str(item)), item) for item in texts if item]
    if not found:
        raise InputError("no policy was given; expected names with commas between them (tileq catalog policies)")
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"policy {twice!r} is given twice; in Python a mapping of names to policies tells them apart")
    return {name: parse_policy(item, plan=plan) for name, item in found}
