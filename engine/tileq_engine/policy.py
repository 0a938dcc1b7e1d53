"""A policy: a named composition of the five rules, with its parameters."""

from __future__ import annotations

__all__ = ["Policy", "PolicyError", "Prepared", "Rule"]

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any, TypeAlias

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, near_matches
from tileq_theory.iteration_time import IterationTime

Rule: TypeAlias = str | Callable[..., Any]
RULE_KINDS = ("decodes", "order", "mixing", "admission", "eviction")


class PolicyError(InputError):
    """A policy formed a batch that cannot be run; the message names the rule, the request and the reason."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a policy adds to a run once requests, time and settings are known: scalars, integers, requests."""

    requests: Requests
    scalars: Mapping[str, float] = field(default_factory=dict)
    integers: tuple[int, ...] = ()


Prepare: TypeAlias = Callable[["Policy", Requests, IterationTime, EngineConfig], Prepared]


@dataclass(frozen=True, slots=True)
class Policy:
    """A composition of five rules.

    Parameters
    ----------
    name
        The policy's name, for tables.
    decodes, order, mixing, admission, eviction
        Each a kernel of `tileq_engine.rules` by name, or a function of the user's with the same arguments.
    params
        What the policy was made with, for tables and provenance.
    scalars
        Fields of the scalar record that the policy sets (`alloc`, `whole`, `to_front`, ...).
    prepare
        Called once before a run; returns what depends on requests, time and settings.
    token_budget, max_num_seqs
        Override the settings' when given.
    macro
        True when the mixing rule announces repeats, so that macro-steps are proved for it.
    """

    name: str
    decodes: Rule = "decodes_all"
    order: Rule = "order_fcfs"
    mixing: Rule = "mix_chunked"
    admission: Rule = "admit_watermark"
    eviction: Rule = "evict_last"
    params: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    prepare: Prepare | None = None
    token_budget: int | None = None
    max_num_seqs: int | None = None
    macro: bool = True

    @property
    def rules(self) -> dict[str, Rule]:
        """Return the five rules by kind."""
        return {kind: getattr(self, kind) for kind in RULE_KINDS}

    @property
    def own_rules(self) -> tuple[str, ...]:
        """Return the kinds of rule that are functions of the user's."""
        return tuple(kind for kind, rule in self.rules.items() if not isinstance(rule, str))

    def with_rule(self, **rules: Rule) -> Policy:
        """Return a copy with the named rules replaced, e.g. `with_rule(order=lambda R, S, P, i: R[i].prompt)`.

        A policy with a rule of the user's own is stepped, and every batch of it is checked.
        """
        for kind in rules:
            if kind not in RULE_KINDS:
                raise InputError(f"rule kind {kind!r} is unknown; {near_matches('rule kinds', kind, RULE_KINDS)}")
        changes: dict[str, Any] = {**rules, "macro": self.macro and all(isinstance(r, str) for r in rules.values())}
        return replace(self, **changes)

    def settings(self, config: EngineConfig) -> EngineConfig:
        """Return `config` with the policy's own budget and residents where it has them."""
        own = {
            name: getattr(self, name) for name in ("token_budget", "max_num_seqs") if getattr(self, name) is not None
        }
        return config.with_(**own) if own else config

    def describe(self) -> str:
        """Return one short line, e.g. 'sarathi(order=spf, token_budget=512)'."""
        limits = {"token_budget": self.token_budget, "max_num_seqs": self.max_num_seqs}
        inside = ", ".join(f"{k}={v}" for k, v in {**self.params, **limits}.items() if v is not None)
        return f"{self.name}({inside})" if inside else self.name

    def to_dict(self) -> dict[str, object]:
        """Return everything that makes the policy decide as it does, as plain data: two policies differ if it does.

        A rule of the user's own is known by its name and by a digest of its code.
        """
        return {
            "name": self.name,
            "rules": _plain(self.rules),
            "params": _plain(self.params),
            "scalars": _plain(self.scalars),
            "prepare": _plain(self.prepare),
            "token_budget": self.token_budget,
            "max_num_seqs": self.max_num_seqs,
        }


def _plain(value: Any) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, partial):
        return {"of": _plain(value.func), "arguments": _plain(value.args), "options": _plain(value.keywords)}
    if callable(value):
        return _function(value)
    return str(value)


def _function(function: Callable[..., Any]) -> str:
    """Return the name of a function, with a digest of its code where it is not the library's."""
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or str(getattr(function, "__module__", "")).startswith("tileq_"):
        return name
    cells = [_cell(cell) for cell in getattr(function, "__closure__", None) or ()]
    told = repr((_code(code), getattr(function, "__defaults__", None), cells))
    return f"{name} {hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _code(code: CodeType) -> tuple[object, ...]:
    """Return what a function does, without where it stands in its file."""
    constants = tuple(_code(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return (code.co_code.hex(), constants, code.co_names, code.co_varnames)


def _cell(cell: Any) -> object:
    try:
        return _plain(cell.cell_contents)
    except ValueError:  # not filled yet
        return None
