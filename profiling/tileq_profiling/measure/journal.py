"""The file of a session: a header, then a line for each point as it is measured; survives a kill at any moment.

A line is written with one call and synced before the next point begins. A last line without its end was being written
when the process died: it is dropped, and the point is measured again. A session goes on only under the conditions that
it began with.
"""

from __future__ import annotations

__all__ = ["Journal"]

import json
import os
from pathlib import Path
from typing import Any

from tileq_theory.errors import InputError

_KIND = "tileq measurement session"
_VERSION = 1
# These may differ between the parts of one session.
_FREE = ("clocks", "libraries")


class Journal:
    """Lines of a session on disk, those of earlier runs read back."""

    def __init__(self, path: Path, header: dict[str, Any], *, resume: bool) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        self.resumed = False
        if resume and path.is_file() and path.stat().st_size:
            self._read(header)
            self.resumed = True
        else:
            self._start(header)

    def _start(self, header: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_name(self.path.name + ".new")
            fresh.write_text(json.dumps({"kind": _KIND, "schema_version": _VERSION, **header}) + "\n", encoding="utf-8")
            fresh.replace(self.path)
        except OSError as problem:
            raise InputError(f"{self.path} cannot be written: {problem.strerror or problem}") from None

    def _read(self, header: dict[str, Any]) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.splitlines()
        try:
            values = [json.loads(line) for line in lines]
        except ValueError:
            raise InputError(f"{self.path}: a line is not valid JSON; pass resume=False to begin anew") from None
        if not values or not isinstance(values[0], dict) or values[0].get("kind") != _KIND:
            raise InputError(f"{self.path} is no measurement session; pass another out=, or resume=False")
        if values[0].get("schema_version") != _VERSION:
            raise InputError(f"{self.path} has schema_version {values[0].get('schema_version')}; expected {_VERSION}")
        for key, value in header.items():
            before = values[0].get(key)
            if key not in _FREE and before != json.loads(json.dumps(value)):
                raise InputError(
                    f"{self.path} was begun with {key} {before!r}, now it is {value!r}; measure under the same "
                    "conditions, or pass resume=False to begin anew"
                )
        self.records = values[1:]
        if len(whole) < len(raw):
            with self.path.open("r+b") as torn:
                torn.truncate(len(whole))

    def add(self, record: dict[str, Any]) -> None:
        """Append one record; it is on disk when this returns."""
        line = (json.dumps(record) + "\n").encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)
        self.records.append(record)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of one kind, in order."""
        return [record for record in self.records if record.get("what") == kind]
