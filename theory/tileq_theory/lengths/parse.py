r"""Length laws written in a line.

One length is a whole number (`512`) or a law with its numbers, in brackets or, where it stands alone, after colons:

    uniform(10, 1600)            uniform:10:1600           whole numbers low..high
    geometric(200[, 512])        geometric:200[:512]       mean without the cap[, cap]
    exponential(200[, 512])      exponential:200[:512]     floor(Exp(mean)) + 1[, cap]
    lognormal(7, 0.7[, 8192])    lognormal:7:0.7[:8192]    mu, sigma of the logarithm[, longest]
    percentiles(900, 4000[, 8192])                         lognormal by its p50 and p99[, longest]
    multiple(128, uniform(1, 8))                           128 times a law
    choice(100, 200, 4000)                                 the listed lengths, equally likely

Laws nest only inside `multiple`, in brackets.
"""

from __future__ import annotations

__all__ = ["parse_lengths", "split_outside"]

from collections.abc import Callable

from tileq_theory.errors import InputError, near_matches
from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.checks import LARGEST_TOKENS
from tileq_theory.lengths.empirical import Empirical
from tileq_theory.lengths.fixed import Fixed
from tileq_theory.lengths.geometric import Geometric
from tileq_theory.lengths.lognormal import LogNormal
from tileq_theory.lengths.multiple import MultipleOf
from tileq_theory.lengths.uniform import Uniform

_FORMS = "512, uniform(10,1600), geometric(200,512), exponential(200,512), lognormal(7,0.7), percentiles(900,4000)"


def split_outside(text: str, mark: str) -> list[str]:
    """Return `text` split at each `mark` that stands outside brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == mark and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth != 0:
        raise InputError(f"{text!r}: brackets do not match")
    return [*parts, text[start:]]


def parse_lengths(text: str) -> LengthLaw:
    """Return the length law that `text` names; the forms stand in this module's own docstring.

    Parameters
    ----------
    text
        A whole number of tokens, or a law's name with its numbers.

    Raises
    ------
    InputError
        In one line: what was given and which forms are known.

    Examples
    --------
    >>> parse_lengths("uniform:10:1600") == parse_lengths("uniform(10, 1600)")
    True
    >>> parse_lengths("512").mean()
    512.0
    """
    given = text.strip()
    if not given:
        raise InputError(f"an empty length was given; expected one of: {_FORMS}")
    name, arguments = _call(given)
    if not arguments and name[0] in "0123456789+-.":
        return Fixed(_whole(given, name))
    builder = _LAWS.get(name.lower())
    if builder is None:
        raise InputError(f"length law {name!r} in {given!r} is unknown; {near_matches('laws', name, _LAWS)}")
    if not all(a.strip() for a in arguments):
        raise InputError(f"{given!r} has an empty entry; expected a form like one of: {_FORMS}")
    build, least, most = builder
    if not least <= len(arguments) <= most:
        count = str(least) if least == most else f"{least} to {most}" if most < 1000 else f"at least {least}"
        raise InputError(f"{given!r} has {len(arguments)} numbers; {name} expects {count}")
    try:
        return build(given, [a.strip() for a in arguments])
    except InputError as error:
        message = str(error)
        raise InputError(message if given in message else f"{given!r}: {message}") from None


def _call(given: str) -> tuple[str, list[str]]:
    """Return the name and the arguments of 'name(a, b)' or 'name:a:b'."""
    parts = split_outside(given, ":")
    if len(parts) > 1:
        if "(" in given:
            raise InputError(f"{given!r} mixes brackets and colons; expected name(a, b) or name:a:b")
        return parts[0].strip(), parts[1:]
    if "(" not in given:
        return given, []
    name, _, rest = given.partition("(")
    if not rest.endswith(")") or not name.strip():
        raise InputError(f"{given!r} is not of the form name(a, b)")
    return name.strip(), split_outside(rest[:-1], ",")


def _number(given: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} in {given!r} is not a number") from None


def _whole(given: str, text: str) -> int:
    value = _number(given, text)
    if not 1 <= value <= LARGEST_TOKENS or value != int(value):
        raise InputError(f"length {text!r} in {given!r}; expected a whole number of tokens, 1 or more")
    return int(value)


def _uniform(given: str, a: list[str]) -> LengthLaw:
    return Uniform(_whole(given, a[0]), _whole(given, a[1]))


def _geometric(given: str, a: list[str]) -> LengthLaw:
    return Geometric(mean=_number(given, a[0]), cap=_cap(given, a[1:]))


def _exponential(given: str, a: list[str]) -> LengthLaw:
    return Geometric.floor_exponential(_number(given, a[0]), cap=_cap(given, a[1:]))


def _lognormal(given: str, a: list[str]) -> LengthLaw:
    return LogNormal(_number(given, a[0]), _number(given, a[1]), high=_cap(given, a[2:]))


def _percentiles(given: str, a: list[str]) -> LengthLaw:
    return LogNormal.from_percentiles(_number(given, a[0]), _number(given, a[1]), high=_cap(given, a[2:]))


def _multiple(given: str, a: list[str]) -> LengthLaw:
    return MultipleOf(_whole(given, a[0]), parse_lengths(a[1]))


def _choice(given: str, a: list[str]) -> LengthLaw:
    return Empirical([_whole(given, text) for text in a])


def _cap(given: str, rest: list[str]) -> int | None:
    return _whole(given, rest[0]) if rest else None


_LAWS: dict[str, tuple[Callable[[str, list[str]], LengthLaw], int, int]] = {
    "choice": (_choice, 1, 10_000),
    "exponential": (_exponential, 1, 2),
    "geometric": (_geometric, 1, 2),
    "lognormal": (_lognormal, 2, 3),
    "multiple": (_multiple, 2, 2),
    "percentiles": (_percentiles, 2, 3),
    "uniform": (_uniform, 2, 2),
}
