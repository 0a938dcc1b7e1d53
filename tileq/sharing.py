"""Tenants and backpressure as a command names them: the grammar of the texts, and what they stand for."""

from __future__ import annotations

__all__ = ["parse_backpressure", "parse_prices", "parse_tenants", "shared_tenants"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError, finite, near_matches

if TYPE_CHECKING:
    from tileq_engine.backpressure import Backpressure
    from tileq_engine.tenants import Tenants
    from tileq_theory.workload import Workload

_TENANT_FORM = "expected NAME=WEIGHT[:QUOTA][:priority=N][:ttft=SECONDS][@SHARE], as gold=3:64@0.2"
_PRESSURE_FORM = "expected ACTION[:waiting=N][:kv=SHARE][:tokens=N], as reject:waiting=64 or shrink:kv=0.9"


@dataclass(frozen=True, slots=True)
class _Tenant:
    name: str
    weight: float
    quota: int | None = None
    priority: int | None = None
    ttft: float | None = None
    share: float | None = None


def parse_tenants(
    texts: Sequence[str], workload: Workload, prices: tuple[float, float] = (1.0, 2.0)
) -> tuple[Tenants, Workload]:
    """Return the tenants of texts like "gold=3:64@0.2", and the workload in which every tenant is a class.

    The classes of a workload are its tenants, and a text names one of them; those that no text names have weight 1.
    Where every text says which share of the requests is its tenant's, or the workload has one class, all requests are
    divided among the tenants named, in those shares (equal ones where none is given).

    Examples
    --------
    >>> from tileq.traffic import make_traffic
    >>> tenants, workload = parse_tenants(["gold=3@0.5", "free=1@0.5"], make_traffic(classes=["512:64"]).workload)
    >>> tenants.shares, [c.name for c in workload.classes]
    ((0.75, 0.25), ['gold', 'free'])
    """
    given = [_tenant(text) for text in texts]
    names = [tenant.name for tenant in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"tenant {twice!r} is given twice; expected every name once")
    shared = [tenant.share is not None for tenant in given]
    if any(shared) and not all(shared):
        raise InputError(
            f"tenant {names[shared.index(False)]!r} has no share of the requests and others have; expected @SHARE for "
            "all or none"
        )
    classes = [item.name for item in workload.classes]
    if all(shared) or (len(classes) == 1 and names != classes):
        return _collected(given, prices), _divided(given, workload)
    for name in names:
        if name not in classes:
            raise InputError(
                f"tenant {name!r} is unknown; {near_matches('classes', name, classes)}; to divide the requests "
                "otherwise give every tenant its share of them, as gold=3@0.2"
            )
    by_name = {tenant.name: tenant for tenant in given}
    return _collected([by_name.get(name, _Tenant(name, 1.0)) for name in classes], prices), workload


def _collected(given: Sequence[_Tenant], prices: tuple[float, float]) -> Tenants:
    from tileq_engine.tenants import Tenants

    def column(values: list[Any], absent: Any) -> tuple[Any, ...]:
        some = any(value is not None for value in values)
        return tuple(absent if value is None else value for value in values) if some else ()

    deadlines = [tenant.ttft for tenant in given]
    return Tenants(
        names=tuple(tenant.name for tenant in given),
        weights=tuple(tenant.weight for tenant in given),
        quotas=column([tenant.quota for tenant in given], None),
        priorities=column([tenant.priority for tenant in given], 0),
        deadlines_s=column(deadlines, max((d for d in deadlines if d is not None), default=1.0)),
        prompt_price=prices[0],
        output_price=prices[1],
    )


def _divided(given: Sequence[_Tenant], workload: Workload) -> Workload:
    """Return the workload with one class a tenant, each of the lengths of all."""
    from dataclasses import replace

    from tileq_theory.request_class import RequestClass

    first = workload.classes[0] if len(workload.classes) == 1 else None
    limits = {} if first is None else {"tbt_s": first.tbt_s, "ttft_s": first.ttft_s}
    classes = [RequestClass(t.name, workload.lengths, 1.0 if t.share is None else t.share, **limits) for t in given]
    return replace(workload, classes=classes)


def _tenant(text: str) -> _Tenant:
    body, at, share = text.partition("@")
    name, equals, rest = body.partition("=")
    if not equals or not name.strip() or not rest.strip():
        raise InputError(f"tenant {text!r} has no name or no weight; {_TENANT_FORM}")
    weight, *settings = rest.split(":")
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key, value = (key.strip(), value) if equals else ("quota", setting)
        readers: dict[str, Callable[[str], Any]] = {"quota": _whole, "priority": _whole, "ttft": _number}
        if key not in readers:
            raise InputError(f"tenant {text!r} has the setting {key!r}; {near_matches('settings', key, readers)}")
        if key in found:
            raise InputError(f"tenant {text!r} gives {key} twice; {_TENANT_FORM}")
        found[key] = _read(text, key, value, readers[key], _TENANT_FORM)
    if "quota" in found and found["quota"] < 1:
        raise InputError(f"quota of tenant {name.strip()!r} is {found['quota']}; expected at least one request")
    portion = _read(text, "share", share, _number, _TENANT_FORM) if at else None
    if portion is not None and portion < 0:
        raise InputError(f"share of tenant {name.strip()!r} is {portion:g}; expected 0 or more")
    return _Tenant(name.strip(), _read(text, "weight", weight, _number, _TENANT_FORM), share=portion, **found)


def _read(text: str, key: str, value: str, reader: Callable[[str], Any], form: str) -> Any:
    try:
        return reader(value)
    except ValueError:
        raise InputError(f"{text!r} has {key} {value.strip()!r}; {form}") from None


def _whole(text: str) -> int:
    return int(text)


def _number(text: str) -> float:
    return finite("number", float(text))


def parse_backpressure(text: str) -> Backpressure:
    """Return what "ACTION:waiting=N:kv=SHARE:tokens=N" stands for.

    Examples
    --------
    >>> parse_backpressure("shrink:kv=0.9:tokens=256").shrunk_tokens
    256
    """
    from tileq_engine.backpressure import ACTIONS, Backpressure

    action, *settings = (part.strip() for part in text.split(":"))
    if action not in ACTIONS:
        raise InputError(f"backpressure is {action!r}; {near_matches('actions', action, ACTIONS)}")
    fields = {"waiting": "waiting", "kv": "kv_share", "tokens": "shrunk_tokens"}
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or key not in fields:
            raise InputError(f"backpressure {text!r} has the setting {setting!r}; {_PRESSURE_FORM}")
        if fields[key] in found:
            raise InputError(f"backpressure {text!r} gives {key} twice; {_PRESSURE_FORM}")
        found[fields[key]] = _read(text, key, value, _number if key == "kv" else _whole, _PRESSURE_FORM)
    return Backpressure(action, **found)


def parse_prices(text: str) -> tuple[float, float]:
    """Return the prices of a prompt and an output token in "P:O".

    Examples
    --------
    >>> parse_prices("1:2")
    (1.0, 2.0)
    """
    prompt, colon, output = text.partition(":")
    form = "expected the prices of a prompt and of an output token as 1:2"
    if not colon:
        raise InputError(f"token prices are {text!r}; {form}")
    prices = tuple(_read(text, "price", value, _number, form) for value in (prompt, output))
    return float(prices[0]), float(prices[1])


def shared_tenants(
    workload: Workload, tenants: Sequence[str] | Tenants | None, prices: str | tuple[float, float] = (1.0, 2.0)
) -> tuple[Tenants | None, Workload | None]:
    """Return the tenants and the workload in which each is a class; None for either where there is none.

    Examples
    --------
    >>> from tileq.traffic import make_traffic
    >>> shared_tenants(make_traffic(classes=["512:64"]).workload, None)
    (None, None)
    """
    from tileq_engine.tenants import Tenants

    if isinstance(tenants, Tenants):
        return tenants, None
    priced = parse_prices(prices) if isinstance(prices, str) else prices
    if not tenants:
        if priced != (1.0, 2.0):
            raise InputError(f"token prices {prices!r} are given and no tenant; expected tenants who pay them")
        return None, None
    return parse_tenants(tenants, workload, priced)
