"""Closed forms of every special case of the capacity program, in sympy: the referee of the program and of the docs.

`closed_forms()` is the registry; `closed_form(name)` one entry of it. Nothing here depends on the numerical program.
"""

from __future__ import annotations

__all__ = ["ClosedForm", "Condition", "Quantity", "closed_form", "closed_forms"]

from functools import cache

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.errors import InputError, near_matches


@cache
def _registry() -> dict[str, ClosedForm]:
    from tileq_theory.closed_forms import (
        cluster,
        dai,
        exclusive,
        family,
        nie,
        rad,
        single_level,
        static,
        threshold,
        wait,
    )

    modules = (family, rad, dai, nie, wait, single_level, exclusive, static, threshold, cluster)
    return {form.name: form for module in modules for form in module.FORMS}


def closed_forms() -> dict[str, ClosedForm]:
    """Return every closed form by name.

    Examples
    --------
    >>> sorted(closed_forms())[:3]
    ['capped_exponential_mean', 'dai_best_rate', 'dai_capacity']
    """
    return dict(_registry())


def closed_form(name: str) -> ClosedForm:
    """Return the closed form called `name`; `InputError` with near matches when there is none.

    Examples
    --------
    >>> closed_form("nie_capacity").evaluate(
    ...     kv_capacity_tokens=131000, batch_s="0.0372", memory_iterations=1079151.3330078125, nodes=1
    ... )  # doctest: +ELLIPSIS
    3.26321...
    """
    forms = _registry()
    if name not in forms:
        raise InputError(f"no closed form is called {name!r}; {near_matches('closed forms', name, forms)}")
    return forms[name]
