"""Requests out of JSON lines and JSON documents, each field checked; errors name the line or the request."""

from __future__ import annotations

__all__ = ["Collector", "as_list", "as_object", "lines", "objects"]

import json
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from tileq_profiling.readers.build import Rows, text_label
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.strict_json import DuplicateKeyError, parse_line
from tileq_profiling.readers.values import MAX_TOKENS, BadValueError, as_time, as_whole
from tileq_theory.errors import InputError

_MISSING = object()


def lines(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of every line; blank lines are passed over."""
    with source.open_text() as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            try:
                value = parse_line(line)
            except DuplicateKeyError as problem:
                raise InputError(f"{source.name} line {number}: {problem}; remove one of the two") from None
            except json.JSONDecodeError as problem:
                raise InputError(
                    f"{source.name} line {number}: not valid JSON ({problem.msg} at column {problem.colno}); is the "
                    "file complete?"
                ) from None
            except ValueError as problem:
                raise InputError(f"{source.name} line {number}: not usable JSON ({problem})") from None
            if not isinstance(value, dict):
                raise InputError(f"{source.name} line {number}: {line[:40]!r}; expected a JSON object")
            yield number, value


def objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (position, object): the lines of a JSON-lines file, or the elements of a JSON list, or the document."""
    if source.is_lines:
        yield from lines(source)
        return
    document = source.document
    for number, value in enumerate(document if isinstance(document, list) else [document], start=1):
        yield number, as_object(source, value, f"element {number}")


def as_object(source: Source, value: Any, what: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else raise `InputError`."""
    if not isinstance(value, dict):
        raise InputError(f"{source.name} {what}: {str(value)[:40]!r}; expected a JSON object")
    return value


def as_list(source: Source, value: Any, what: str) -> list[Any]:
    """Return `value` if it is a JSON list, else raise `InputError`."""
    if not isinstance(value, list):
        raise InputError(f"{source.name} {what}: {str(value)[:40]!r}; expected a list")
    return value


class Collector:
    """Columns under construction, with the place each row came from."""

    def __init__(self, source: Source, noun: str | None = None) -> None:
        self.source = source
        self.noun = noun or ("line" if source.is_lines else "request")
        self.prompts = array("q")
        self.outputs = array("q")
        self.places = array("q")
        self.times: list[int | float] = []
        self.labels: dict[str, list[str]] = {}
        self.skipped: Counter[str] = Counter()

    def at(self, place: int) -> str:
        """Return how a message names the row at `place`."""
        return f"{self.source.name} {self.noun} {place}"

    def refuse(self, place: int, key: str, value: Any, expected: str) -> InputError:
        """Return the error for a field that is not what it must be."""
        if value is _MISSING:
            return InputError(f"{self.at(place)} has no field {key!r}; {expected}")
        text = json.dumps(value) if isinstance(value, (str, list, dict)) else str(value)
        return InputError(f"{self.at(place)}, field {key}: {text[:60]}; {expected}; mend or remove the {self.noun}")

    def whole(self, place: int, record: dict[str, Any], key: str) -> int:
        """Return field `key` as a whole number of tokens."""
        value = record.get(key, _MISSING)
        if type(value) is int and 0 <= value <= MAX_TOKENS:  # nearly every field of a long file
            return value
        try:
            return as_whole(value)
        except BadValueError as problem:
            raise self.refuse(place, key, value, str(problem)) from None

    def time(self, place: int, record: dict[str, Any], key: str) -> int | float:
        """Return field `key` as a time."""
        value = record.get(key, _MISSING)
        try:
            return as_time(value)
        except BadValueError as problem:
            raise self.refuse(place, key, value, str(problem)) from None

    def label(self, place: int, record: dict[str, Any], key: str, name: str | None = None) -> None:
        """Append field `key` to a label, '' when it is absent or null."""
        value = record.get(key)
        if isinstance(value, (dict, list)):
            raise self.refuse(place, key, value, "expected a name")
        self.labels.setdefault(name or key, []).append("" if value is None else str(value))

    def add(self, place: int, prompt: int, output: int, time: int | float | None = None) -> None:
        """Append one request."""
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.places.append(place)
        if time is not None:
            self.times.append(time)

    def rows(self, per_s: float = 1.0) -> Rows:
        """Return the columns; either every request has a time or none."""
        count = len(self.prompts)
        if self.times and len(self.times) != count:
            raise InputError(f"{self.source.name}: {len(self.times)} of {count} requests have a time; expected all")
        integral = all(type(value) is int for value in self.times)
        return Rows(
            prompts=np.array(self.prompts, np.int64),
            outputs=np.array(self.outputs, np.int64),
            times=np.array(self.times, np.int64 if integral else np.float64) if self.times else None,
            per_s=per_s,
            where=lambda row: f"{self.noun} {self.places[row]}",
            labels=tuple(text_label(name, values) for name, values in self.labels.items()),
            skipped=list(self.skipped.items()),
        )
