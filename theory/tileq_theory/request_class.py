"""A class of requests: a tenant, a tier or an application, with its length law and its promises."""

from __future__ import annotations

__all__ = ["RequestClass", "parse_class"]

from dataclasses import dataclass

from tileq_theory.errors import InputError, nonnegative, positive
from tileq_theory.lengths.base import JointLaw
from tileq_theory.lengths.copula import GaussianCopula
from tileq_theory.lengths.independent import Independent
from tileq_theory.lengths.parse import parse_lengths, split_outside

_MOST_SHARE = 1e100  # the sum of shares must not overflow


@dataclass(frozen=True, slots=True)
class RequestClass:
    """One class i of a workload.

    Parameters
    ----------
    name
        Its name, not empty.
    lengths
        Joint law of its prompt and output lengths.
    share
        Its weight q_i in the mix, 0 or more; the workload scales shares to sum 1.
    tbt_s, ttft_s
        Promised time between tokens and time to the first token, seconds; None where nothing is promised.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed
    >>> RequestClass("chat", Independent(Fixed(512), Fixed(128)), share=0.3).share
    0.3
    """

    name: str
    lengths: JointLaw
    share: float = 1.0
    tbt_s: float | None = None
    ttft_s: float | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise InputError("a request class has an empty name; expected a name")
        object.__setattr__(self, "share", nonnegative(f"share of class {self.name!r}", self.share))
        if self.share > _MOST_SHARE:
            raise InputError(f"share of class {self.name!r} is {self.share:g}; expected at most {_MOST_SHARE:g}")
        for limit in ("tbt_s", "ttft_s"):
            if getattr(self, limit) is not None:
                object.__setattr__(self, limit, positive(f"{limit} of class {self.name!r}", getattr(self, limit)))


def parse_class(text: str, default_name: str | None = None) -> RequestClass:
    """Return the class that a line like `name=P:O@share` names.

    P and O are lengths as `parse_lengths` reads them, with the brackets form for laws, since the one colon outside
    brackets separates prompt from output. Name and share may be left out: the name is then the text, the share 1.

    Parameters
    ----------
    text
        E.g. `512:128`, `uniform(10,1600):geometric(200,512)`, `chat=512:128@0.3`.
    default_name
        Name of a class that the text does not name.

    Raises
    ------
    InputError
        In one line.

    Examples
    --------
    >>> parse_class("chat=512:128@0.3").name
    'chat'
    >>> parse_class("uniform(10,1600):200").lengths.prompt_law.mean()
    805.0
    """
    given = text.strip()
    name, rest = _before(given, "=")
    body, share = _after(rest, "@", given)
    parts = split_outside(body, ":")
    if len(parts) != 2 or not all(p.strip() for p in parts):
        raise InputError(
            f"class {given!r} is not of the form P:O, prompt and output lengths as in 512:128 or "
            "uniform(10,1600):geometric(200,512); a law's own numbers stand in brackets"
        )
    prompt = parse_lengths(parts[0])
    output, _, rank = parts[1].partition("~")
    lengths: JointLaw = Independent(prompt, parse_lengths(output))
    if "~" in parts[1]:
        lengths = GaussianCopula(prompt, parse_lengths(output), _correlation(rank, given))
    return RequestClass(name or default_name or body.strip(), lengths, share)


def _correlation(text: str, given: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"class {given!r} has rank correlation {text!r}; expected a number after '~'") from None


def _before(given: str, mark: str) -> tuple[str | None, str]:
    """Return the name before the first mark, None where there is no mark."""
    if mark not in given:
        return None, given
    name, _, rest = given.partition(mark)
    if not name.strip():
        raise InputError(f"class {given!r} has an empty name before '='; expected name=P:O")
    return name.strip(), rest


def _after(body: str, mark: str, given: str) -> tuple[str, float]:
    """Return the body without its share, and the share (1 where there is none)."""
    if mark not in body:
        return body, 1.0
    rest, _, share = body.rpartition(mark)
    try:
        return rest, positive("share", float(share))
    except ValueError:
        raise InputError(f"class {given!r} has share {share!r}; expected a number above 0 after '@'") from None
