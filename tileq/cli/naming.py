"""Errors in the words of the command line: the option that was given, where a message names the parameter behind it."""

from __future__ import annotations

__all__ = ["by_option", "unexpected_word"]

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

# what Python's functions call otherwise than the command's own
_OTHER_NAMES = {"seats": "max_num_seqs", "rate": "rates", "rate_per_s": "rate", "control's tbt_s": "control_tbt"}

_PAIRS = re.compile(r"both given|given beside|without \w+[;,]")


def by_option(app: App, arguments: Sequence[str], message: str) -> str:
    """Return the message with options in place of parameters, if it begins with one of an option that was given.

    "nodes is 0; expected ..." of `--replicas 0` becomes "--replicas is 0; expected ...". What names a key of a file, or
    an option that nobody gave, stays as it is.

    Examples
    --------
    >>> from tileq.cli.app import app
    >>> by_option(app, ["plan", "--replicas", "0"], "nodes is 0; expected a whole number")
    '--replicas is 0; expected a whole number'
    >>> by_option(app, ["plan"], "nodes is 0; expected a whole number")
    'nodes is 0; expected a whole number'
    """
    options = _options(app, arguments)
    given = {name: option for name, (option, was_given) in options.items() if was_given}
    if not given:
        return message
    one = "|".join(sorted((name.replace("_", "[_ ]") for name in options), key=len, reverse=True))
    start = re.match(rf"(?:{one})(?:(?:, | and )(?:{one}))*(?= (?:is|are|has|have)\b| ['\d]|: )", message)
    long = "|".join(name for name in options if "_" in name) or "(?!)"
    named_later = re.findall(rf"\b(?:{long})\b", message)
    if start is None or not any(_key(word) in given for word in [*re.findall(one, start[0]), *named_later]):
        return message

    def named(found: re.Match[str]) -> str:
        return options[_key(found[0])][0]

    head, rest = re.sub(rf"\b(?:{one})\b", named, start[0]), message[start.end() :]
    rest = re.sub(rf"(?<![\w'\"-])(?:{long})(?![\w'\"=])", named, rest)
    if _PAIRS.search(rest):
        pair = rf"\b(and|beside|without) ({one})\b"
        rest = re.sub(pair, lambda found: f"{found[1]} {options[_key(found[2])][0]}", rest)
    choice = re.search(rf"expected one of (?:{one})(?:(?:, | and )(?:{one}))*$", rest)
    if choice is not None:
        rest = rest[: choice.start()] + re.sub(rf"\b(?:{one})\b", named, choice[0])
    return head + rest


def unexpected_word(app: App, arguments: Sequence[str]) -> str | None:
    """Return the first word that belongs to no option of a command that takes options alone; None where there is none.

    Examples
    --------
    >>> from tileq.cli.app import app
    >>> unexpected_word(app, ["profile", "foo"]), unexpected_word(app, ["plan", "--gpu", "a100"])
    ('foo', None)
    """
    names, path, _ = app.parse_commands(list(arguments))
    if path[-1].default_command is None:
        return None
    collection = path[-1].assemble_argument_collection()
    if any(argument.index is not None for argument in collection):
        return None
    flags = {name for argument in collection if argument.hint is bool for name in argument.names}
    words = iter(arguments[len(names) :])
    for word in words:
        if not word.startswith("-"):
            return word
        if "=" not in word and word not in flags:
            next(words, None)  # the value of an option
    return None


def _key(word: str) -> str:
    return word.replace(" ", "_")


def _options(app: App, arguments: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """Return the option of each parameter of the command, the name that was given first, and whether one was."""
    _, path, _ = app.parse_commands(list(arguments))
    command = path[-1]
    if command.default_command is None:
        return {}
    found = {}
    words = [word.partition("=")[0] for word in arguments]
    for argument in command.assemble_argument_collection():
        names = [name for name in argument.names if name.startswith("--")]
        if names:
            used = next((word for word in words if word in names), None)
            found[argument.field_info.name] = (used or names[0], used is not None)
    for other, name in _OTHER_NAMES.items():
        if name in found:
            found.setdefault(_key(other), found[name])
    return found
