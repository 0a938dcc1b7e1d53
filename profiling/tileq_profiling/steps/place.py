"""Where measurements lie: a text file, a Parquet file or the folder of a run, looked at once by every reader."""

from __future__ import annotations

__all__ = ["Place"]

import re
from functools import cached_property
from pathlib import Path

from tileq_profiling.readers.source import Source
from tileq_theory.errors import InputError, no_such_file

_SCAN_BYTES = 1 << 23
_DEPTH = 6
_OVERLAP = 512  # longer than any marker, so that none is lost between two pieces


class Place:
    """A file or folder; raises `InputError` for one that is not there.

    A folder stands for the run whose files it holds: `file(name)` finds them, at most six levels down.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = self.path.name or str(path)
        if not self.path.exists():
            raise no_such_file(self.path, "a log, a profile or the folder of a run")
        self._marked: dict[bytes, bool] = {}

    @property
    def is_folder(self) -> bool:
        """Whether the place is a folder."""
        return self.path.is_dir()

    @cached_property
    def is_parquet(self) -> bool:
        """Whether the place is a Parquet file."""
        if not self.path.is_file():
            return False
        with self.path.open("rb") as raw:
            return raw.read(4) == b"PAR1"

    @cached_property
    def source(self) -> Source | None:
        """The text file, opened; None for a folder or a Parquet file."""
        return None if self.is_folder or self.is_parquet else Source(self.path)

    def text(self) -> Source:
        """Return the text file, or raise `InputError` when the place is none."""
        if self.source is None:
            raise InputError(
                f"{self.name} is {'a folder' if self.is_folder else 'a Parquet file'}; expected a text file"
            )
        return self.source

    def file(self, name: str) -> Path | None:
        """Return the file of that name in the folder, the first by path where there are several."""
        found = self.files(name)
        return found[0] if found else None

    def files(self, name: str) -> list[Path]:
        """Return all files of that name up to six levels down, sorted; [] for a place that is no folder."""
        if not self.is_folder:
            return []
        return sorted({hit for depth in range(_DEPTH + 1) for hit in self.path.glob("*/" * depth + name)})

    def marked(self, pattern: bytes) -> bool:
        """Return whether the text holds a match of `pattern` anywhere: a server logs much before its first batch."""
        if pattern not in self._marked:
            self._marked[pattern] = self._search(re.compile(pattern))
        return self._marked[pattern]

    def _search(self, pattern: re.Pattern[bytes]) -> bool:
        if self.source is None:
            return False
        if pattern.search(self.source.head):
            return True
        with self.source.open_bytes() as stream:
            tail = b""
            while piece := stream.read(_SCAN_BYTES):
                if pattern.search(tail + piece):
                    return True
                tail = piece[-_OVERLAP:]
        return False

    @property
    def shape(self) -> str:
        """What was seen, for the message about an unknown format."""
        if self.is_folder:
            names = sorted(entry.name for entry in self.path.iterdir())
            return f"a folder with {', '.join(names[:12]) or 'nothing in it'}"
        if self.source is None:
            return "a Parquet file"
        return self.source.shape
