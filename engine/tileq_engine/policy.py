"""A policy: a named composition of the five rules, with its parameters."""

from __future__ import annotations

__all__ = ["Policy", "PolicyError", "Prepared", "Rule"]

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, near_matches, positive_int
from tileq_theory.iteration_time import IterationTime

Rule: TypeAlias = str | Callable[..., Any]
RULE_KINDS = ("decodes", "order", "mixing", "admission", "eviction")
_PREFIXES = {"decodes": "decodes_", "order": "order_", "mixing": "mix_", "admission": "admit_", "eviction": "evict_"}


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

    def rules_under(self, config: EngineConfig) -> dict[str, Rule]:
        """Return the five rules as the settings have them: nobody is preempted, or another reservation is asked for."""
        rules = self.rules
        if config.preemption == "none":
            rules["eviction"] = "evict_none"
        if config.reservation != "policy":
            if "admission" in self.own_rules:
                raise InputError(
                    f"policy {self.name} has an admission rule of its own, and reservation is {config.reservation!r}; "
                    "expected 'policy' with it"
                )
            rules["admission"] = "admit_chunk" if config.reservation == "optimistic" else "admit_watermark"
        return rules

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
            _check_rule(kind, rules[kind])
        changes: dict[str, Any] = {**rules, "macro": self.macro and all(isinstance(r, str) for r in rules.values())}
        return replace(self, **changes)

    def with_tenant_quota(self, residents: int) -> Policy:
        """Return a copy in which no tenant has more than `residents` requests active at once.

        A waiting request whose tenant has its quota is passed over; those of others behind it are looked at. (Under
        WAIT, which gathers classes rather than a queue, there is no such rule.)
        """
        quota = positive_int("tenant_quota", residents)
        if self.mixing in ("mix_wait", "mix_nested_wait"):
            raise InputError(f"policy {self.name} moves classes, not a queue; a tenant_quota has no meaning in it")
        prepare = functools.partial(_with_quota, self.prepare, quota)
        return replace(self, prepare=prepare, params={**self.params, "tenant_quota": quota})

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
        """Return name, rules and everything the policy was made with, as plain data.

        Two policies that can decide differently have different data: results kept under one are not taken for the
        other's. A function of the user's is known by its name and a digest of its code.
        """
        named = {k: (r if isinstance(r, str) else _identity(r)) for k, r in self.rules.items()}
        return {
            "name": self.name,
            "rules": named,
            "params": _plain(self.params),
            "settings": _plain({"token_budget": self.token_budget, "max_num_seqs": self.max_num_seqs, **self.scalars}),
            "prepared_by": _plain(self.prepare),
        }


def _with_quota(
    inner: Prepare | None, quota: int, policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    found = Prepared(requests) if inner is None else inner(policy, requests, time, config)
    return replace(found, scalars={**found.scalars, "quota": quota, "dynamic": 1})


def _check_rule(kind: str, rule: Rule) -> None:
    """Raise `InputError` unless `rule` is a function, or the name of a kernel of that kind."""
    if not isinstance(rule, str):
        if not callable(rule):
            raise InputError(f"{kind} rule is {rule!r}; expected a function, or the name of a rule")
        return
    from tileq_engine.compile import plain_kernels

    prefix = _PREFIXES[kind]
    known = [name for name in plain_kernels().functions if name.startswith(prefix)]
    if rule not in known:
        raise InputError(f"{kind} rule {rule!r} is unknown; {near_matches('rules', rule, known)}")


def _identity(function: Any) -> str:
    """Return a function's name; for one of the user's with a digest of its code and of what it has closed over."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if code is None or str(getattr(function, "__module__", "")).startswith("tileq_engine."):
        return str(name)
    cells = [_cell(cell, function) for cell in getattr(function, "__closure__", None) or ()]
    parts = (_code(code), repr(cells), repr(_plain(function.__defaults__)), repr(_plain(function.__kwdefaults__)))
    return f"{name} {hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _cell(cell: Any, owner: Any) -> Any:
    try:
        return None if cell.cell_contents is owner else _plain(cell.cell_contents)
    except ValueError:  # not filled yet
        return None


def _code(code: Any) -> Any:
    inner = [_code(c) if hasattr(c, "co_code") else repr(c) for c in code.co_consts]
    return code.co_code.hex(), inner, code.co_names, code.co_varnames


def _plain(value: Any) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, functools.partial):
        return [_plain(value.func), *(_plain(v) for v in value.args), _plain(value.keywords)]
    return _identity(value) if callable(value) else str(value)
