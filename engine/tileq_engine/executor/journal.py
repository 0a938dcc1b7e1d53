"""The file of a real run: a header, then one line for each iteration as it ends; it survives a kill at any moment.

A line holds the iteration's row of `log.COLUMNS`, then who got which token and who stopped, and a checksum of itself.
With the requests these lines are the whole run: a scheduler that is fed the recorded durations takes the same decisions
again.
"""

from __future__ import annotations

__all__ = ["RunJournal"]

import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tileq_theory.errors import InputError

KIND = "tileq executor run"
VERSION = 2
_SYNC_S = 1.0
_MARK = b',"crc":'


class RunJournal:
    """Append-only lines on disk; those of an earlier process are in `entries`.

    Parameters
    ----------
    path
        The file.
    header
        What the run is; going on under another header is refused.
    resume
        Go on where the file ends; False begins anew.
    """

    def __init__(self, path: str | Path, header: dict[str, Any], *, resume: bool = True) -> None:
        self.path = Path(path)
        self.header = {"kind": KIND, "schema_version": VERSION, **header}
        self.entries: list[dict[str, Any]] = []
        if resume and self.path.is_file() and self.path.stat().st_size:
            self._read()
        else:
            self._start()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._synced = time.monotonic()

    def _start(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_name(self.path.name + ".new")
            fresh.write_text(json.dumps(self.header) + "\n", encoding="utf-8")
            fresh.replace(self.path)
        except OSError as problem:
            raise InputError(f"{self.path} cannot be written: {problem.strerror or problem}") from None

    def _read(self) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        first, *rest = whole.splitlines() or [b""]
        try:
            begun = json.loads(first)
        except ValueError:
            begun = None
        if not isinstance(begun, dict) or begun.get("kind") != KIND:
            raise InputError(f"{self.path} is no executor run; give another file, or resume=False")
        now = json.loads(json.dumps(self.header))
        for key in sorted({*begun, *now}):
            if begun.get(key) != now.get(key):
                raise InputError(
                    f"{self.path} was begun with {key} {_short(begun.get(key))}, now it is {_short(now.get(key))}; "
                    "go on under the same conditions, or begin anew with resume=False"
                )
        self.entries = [self._entry(number, line) for number, line in enumerate(rest, start=2)]
        if len(whole) < len(raw):  # the last line was being written when the process died
            with self.path.open("r+b") as torn:
                torn.truncate(len(whole))

    def add(self, row: Sequence[int], who: Sequence[int], tokens: Sequence[int], stopped: Sequence[int]) -> None:
        """Append one iteration; of whole numbers alone, which Python writes as JSON does."""
        last = f',"s":{list(stopped)}' if stopped else ""
        text = f'{{"i":{list(row)},"r":{list(who)},"t":{list(tokens)}{last}'
        self._line(text.replace(" ", "").encode())

    def event(self, name: str, **facts: Any) -> None:
        """Append something else that happened."""
        self._line(json.dumps({"event": name, **facts}, separators=(",", ":"))[:-1].encode())

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        """Return what a line says, if it is as it was written."""
        body, mark, told = line.rpartition(_MARK)
        if not mark or told != b"%d}" % zlib.crc32(body):
            raise InputError(
                f"{self.path}: line {number} is not as it was written; cut the file before it and go on from there, "
                "or begin anew with resume=False"
            )
        found: dict[str, Any] = json.loads(body + b"}")
        return found

    def _line(self, body: bytes) -> None:
        """Write a JSON object, given without its closing brace, with its checksum."""
        os.write(self._file, body + _MARK + b"%d}\n" % zlib.crc32(body))
        if time.monotonic() - self._synced > _SYNC_S:  # what the kernel holds survives our death, not a power cut
            self.sync()

    def sync(self) -> None:
        """Bring everything to the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Bring everything to the disk and close the file."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
            self._file = -1

    def iterations(self) -> Iterator[dict[str, Any]]:
        """Yield the recorded iterations of earlier processes."""
        yield from (entry for entry in self.entries if "i" in entry)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
