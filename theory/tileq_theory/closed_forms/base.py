r"""A closed form: one sympy expression with the meaning and unit of each symbol, its source, and its derivatives.

The expression is the single place of a formula: tests take their numbers from `exact` and `evaluate`, documentation
takes `latex`, and sensitivities are derivatives of the same expression. Two conventions hold for all of them:

* ceil and floor are held constant when differentiating (a capacity is piecewise smooth in a tile or a budget; the
  sensitivity is the slope within the tile);
* where two arguments of a max tie, the slope from the left differs from the slope from the right: `sensitivities`
  raises `InputError` rather than return either.

sympy is imported inside the functions that need it: it costs about half a second.
"""

from __future__ import annotations

__all__ = ["ClosedForm", "Condition", "Quantity"]

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from numbers import Rational
from typing import Any, Literal

import numpy as np

from tileq_theory.errors import InputError, near_matches

Expr = Any  # a sympy expression; sympy ships no types
Domain = Literal["positive", "nonnegative", "share", "real", "count", "whole"]
# Rational takes in fractions, numpy's whole numbers and sympy's rationals: one form's exact value feeds another
Value = int | float | str | Decimal | Rational

_EXPECTED: dict[str, str] = {
    "positive": "a number above 0",
    "nonnegative": "a number that is 0 or more",
    "share": "a share in [0, 1]",
    "real": "a finite number",
    "count": "a whole number that is 1 or more",
    "whole": "a whole number that is 0 or more",
}
# two arguments of a max closer than this, relative to the larger, are a tie for the sake of a derivative
_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Quantity:
    """One symbol of a closed form.

    Parameters
    ----------
    name
        Python name, used as keyword of `ClosedForm.evaluate`.
    latex
        How the sources write it.
    meaning, unit
        One phrase, and the unit ("s", "tokens", "1/s", "" for a pure number).
    domain
        "positive", "nonnegative", "share" ([0, 1]), "real", "count" (whole, at least 1) or "whole" (at least 0).
    """

    name: str
    latex: str
    meaning: str
    unit: str
    domain: Domain = "positive"


@dataclass(frozen=True, slots=True)
class Condition:
    """A relation that the values must satisfy beyond the domain of each symbol.

    Parameters
    ----------
    margin
        From the symbols to an expression that must be above 0.
    text
        The relation in words and symbols, for the error message.
    strict
        False when a margin of 0 is allowed too.
    """

    margin: Callable[[Mapping[str, Expr]], Expr]
    text: str
    strict: bool = True


@dataclass(frozen=True, slots=True)
class ClosedForm:
    r"""A formula of a source as a symbolic object.

    Parameters
    ----------
    name
        Key of the registry.
    title
        What it computes, one line.
    source
        Citation with theorem or equation number.
    unit
        Unit of the value.
    quantities
        Its symbols, in the order of the formula.
    build
        From {name: sympy symbol} to the expression.
    conditions
        Relations the values must satisfy.

    Examples
    --------
    >>> from tileq_theory.closed_forms import closed_form
    >>> dai = closed_form("dai_token_rate")
    >>> round(dai.evaluate(launch_s=0.01128, tile_s=0.03547, tile_tokens=128, batch_tokens=512), 2)
    3342.91
    >>> dai.exact(launch_s="0.01128", tile_s="0.03547", tile_tokens=128, batch_tokens=512)
    12800000/3829
    """

    name: str
    title: str
    source: str
    unit: str
    quantities: tuple[Quantity, ...]
    build: Callable[[Mapping[str, Expr]], Expr]
    conditions: tuple[Condition, ...] = ()

    # ------------------------------------------------------------------ the formula

    @property
    def symbols(self) -> dict[str, Any]:
        """The sympy symbol of each quantity, by Python name."""
        return dict(_symbols(self))

    @property
    def expression(self) -> Expr:
        """The formula as a sympy expression."""
        return _expression(self)

    def latex(self) -> str:
        """Return the formula as LaTeX, written with the sources' symbols."""
        import sympy as sp

        names = {symbol: q.latex for q, symbol in zip(self.quantities, _symbols(self).values(), strict=True)}
        return str(sp.latex(self.expression, symbol_names=names))

    # ------------------------------------------------------------------ its value

    def exact(self, **values: Value) -> Expr:
        """Return the value as an exact sympy number.

        Whole numbers, fractions, decimals and strings ("0.0372", "31/500") are taken as they read; a float is taken
        at its binary value. Raises `InputError` for a missing, unknown or impossible value.
        """
        return self.expression.xreplace(self._point(values))

    def evaluate(self, **values: Value) -> float:
        """Return the value as a float, correctly rounded from 30 digits."""
        return _number(self.name, self.exact(**values))

    # ------------------------------------------------------------------ how it moves

    def sensitivity(self, symbol: str) -> Expr:
        """Return the derivative by `symbol` as an expression (unit: of the value over that of the symbol)."""
        return _derivative(self, self._known(symbol))

    def elasticity(self, symbol: str) -> Expr:
        """Return d ln(value) / d ln(symbol), simplified: the percent change for one percent of the symbol."""
        return _elasticity(self, self._known(symbol))

    def sensitivities(self, **values: Value) -> dict[str, float]:
        """Return the derivative by every symbol at a point; `InputError` where a max has a kink there."""
        point = self._smooth_point(values)
        return {q.name: _number(self.name, _derivative(self, q.name).xreplace(point)) for q in self.quantities}

    def elasticities(self, **values: Value) -> dict[str, float]:
        """Return d ln(value) / d ln(symbol) for every symbol at a point; `InputError` where a max has a kink there."""
        point = self._smooth_point(values)
        value = _number(self.name, self.expression.xreplace(point))
        if value == 0:
            raise InputError(f"{self.name} is 0 there, so a relative sensitivity does not exist; use sensitivities()")
        symbols = _symbols(self)
        slopes = {q.name: _number(self.name, _derivative(self, q.name).xreplace(point)) for q in self.quantities}
        return {name: slope * float(point[symbols[name]]) / value for name, slope in slopes.items()}

    def to_dict(self) -> dict[str, object]:
        """Return name, title, source, unit, LaTeX and the symbols as plain data."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "unit": self.unit,
            "latex": self.latex(),
            "quantities": [
                {"name": q.name, "latex": q.latex, "meaning": q.meaning, "unit": q.unit, "domain": q.domain}
                for q in self.quantities
            ],
        }

    # ------------------------------------------------------------------ checking what was given

    def _known(self, symbol: str) -> str:
        names = [q.name for q in self.quantities]
        if symbol not in names:
            raise InputError(f"{self.name} has no symbol {symbol!r}; {near_matches('symbols', symbol, names)}")
        return symbol

    def _point(self, values: Mapping[str, Value]) -> dict[Any, Any]:
        for name in values:
            self._known(name)
        missing = [q.name for q in self.quantities if q.name not in values]
        if missing:
            raise InputError(f"{self.name} needs {', '.join(missing)} as well; give each as a keyword")
        symbols = _symbols(self)
        # used with xreplace, not subs: one pass, where subs would compare the arguments of a max anew at every symbol
        point = {symbols[q.name]: _rational(q, values[q.name]) for q in self.quantities}
        for condition in self.conditions:
            margin = condition.margin(symbols).xreplace(point)
            if not (margin > 0 if condition.strict else margin >= 0):
                raise InputError(f"{self.name}: expected {condition.text}, but left minus right is {float(margin):.6g}")
        return point

    def _smooth_point(self, values: Mapping[str, Value]) -> dict[Any, Any]:
        import sympy as sp

        point = self._point(values)
        for maximum in self.expression.atoms(sp.Max):
            sizes = sorted(float(argument.xreplace(point)) for argument in maximum.args)
            if sizes[-1] - sizes[-2] <= _TIE * abs(sizes[-1]):
                raise InputError(
                    f"{self.name}: two arguments of a max are equal there, so the slopes from the left and from the "
                    f"right differ; move one value a little"
                )
        return point


# ---------------------------------------------------------------------- cached symbolic work


@cache
def _symbols(form: ClosedForm) -> Mapping[str, Any]:
    import sympy as sp

    assumptions: dict[str, dict[str, bool]] = {
        "positive": {"positive": True},
        "nonnegative": {"nonnegative": True},
        "share": {"nonnegative": True},
        "real": {"real": True},
        "count": {"integer": True, "positive": True},
        "whole": {"integer": True, "nonnegative": True},
    }
    return {q.name: sp.Symbol(q.name, **assumptions[q.domain]) for q in form.quantities}


@cache
def _expression(form: ClosedForm) -> Expr:
    return form.build(_symbols(form))


@cache
def _derivative(form: ClosedForm, name: str) -> Expr:
    import sympy as sp

    steps = list(form.expression.atoms(sp.ceiling, sp.floor))
    held = {step: sp.Dummy(f"held{i}", real=True) for i, step in enumerate(steps)}
    slope = sp.diff(form.expression.xreplace(held), _symbols(form)[name])
    return slope.xreplace({dummy: step for step, dummy in held.items()})


@cache
def _elasticity(form: ClosedForm, name: str) -> Expr:
    import sympy as sp

    ratio = _derivative(form, name) * _symbols(form)[name] / form.expression
    # a max and its step functions are kept whole: taking them apart makes simplification slow and its result long
    kinks = sorted(ratio.atoms(sp.Max, sp.Heaviside), key=lambda atom: (sp.count_ops(atom), str(atom)), reverse=True)
    held = {kink: sp.Dummy(f"kink{i}", positive=True) for i, kink in enumerate(kinks)}
    whole = sp.simplify(ratio.xreplace(held))
    return whole.xreplace({dummy: kink for kink, dummy in held.items()})


# ---------------------------------------------------------------------- numbers in and out


def _rational(quantity: Quantity, value: Value) -> Any:
    """Return `value` as an exact sympy rational inside the domain of `quantity`."""
    import sympy as sp

    complaint = f"{quantity.name} is {value!r}; expected {_EXPECTED[quantity.domain]}"
    if isinstance(value, (bool, np.bool_)):
        raise InputError(complaint)
    try:
        if isinstance(value, Rational):
            number = Fraction(int(value.numerator), int(value.denominator))
        else:
            number = Fraction(value) if isinstance(value, (str, Decimal)) else Fraction(float(value))
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise InputError(complaint) from None
    inside = {
        "positive": number > 0,
        "nonnegative": number >= 0,
        "share": 0 <= number <= 1,
        "real": True,
        "count": number >= 1 and number.denominator == 1,
        "whole": number >= 0 and number.denominator == 1,
    }[quantity.domain]
    if not inside:
        raise InputError(complaint)
    return sp.Rational(number.numerator, number.denominator)


def _number(name: str, value: Expr) -> float:
    import sympy as sp

    numeric = sp.N(value, 30)
    if not (numeric.is_real and numeric.is_finite and abs(numeric) < sys.float_info.max):
        raise InputError(f"{name} is {numeric} there; expected values at which it is a finite float")
    return float(numeric)
