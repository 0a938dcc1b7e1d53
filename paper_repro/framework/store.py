"""Where data lie: `DIR/NAME.json` of a finished item, `DIR/.pieces/NAME/` of one under way, figures beside them.

Each piece is written whole as it finishes, so a killed run loses only the pieces that were running. A piece or an item
is taken up again only if size, seed, settings and every source that could change its numbers are the same.
"""

from __future__ import annotations

__all__ = ["Key", "Store", "dumps"]

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paper_repro.framework.item import Data
from tileq.plain import plain
from tileq_engine.experiment_store import digest
from tileq_engine.run_io import atomic_write
from tileq_theory.errors import InputError

FORMAT = "tileq-reproduction"
SCHEMA_VERSION = 1


def dumps(document: Mapping[str, Any]) -> str:
    """Return JSON with one entry a line at the top and each list on its line: small, and readable in a diff."""
    plain_document = plain(document)
    entries = [f"{json.dumps(key)}: {_entry(value)}" for key, value in plain_document.items()]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _entry(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(json.dumps(v, allow_nan=False) for v in value) + "\n]"
    return json.dumps(value, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Key:
    """What decides an item's numbers."""

    item: str
    size: str
    seed: int
    settings: Mapping[str, Any]
    sources: str


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of one reproduction."""

    folder: Path

    def _pieces(self, key: Key) -> Path:
        return self.folder / ".pieces" / key.item / digest(plain(asdict(key)))

    def data_path(self, item: str) -> Path:
        """Return the file of a finished item's data."""
        return self.folder / f"{item}.json"

    def figure_path(self, item: str) -> Path:
        """Return the file of an item's figure."""
        return self.folder / f"{item}.svg"

    @property
    def report_path(self) -> Path:
        """File of the report."""
        return self.folder / "REPORT.md"

    def require_writable(self) -> None:
        """Make the folder and refuse, before anything is computed, one that takes no files."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(f"{self.folder} cannot be written ({why}); name another folder with --out") from None

    def read_piece(self, key: Key, piece: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a piece left, or None if it has not been computed with this key."""
        path = self._pieces(key) / f"{digest(plain(piece))}.json"
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def write_piece(self, key: Key, piece: Mapping[str, Any], result: Mapping[str, Any], wall_s: float) -> None:
        """Keep what a piece computed."""
        path = self._pieces(key) / f"{digest(plain(piece))}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"result": plain(result), "wall_s": wall_s}, allow_nan=False)
        atomic_write(path, lambda part: part.write_text(text, encoding="utf-8"))

    def read(self, item: str) -> Data | None:
        """Return an item's data whatever computed them, or None."""
        path = self.data_path(item)
        if not path.exists():
            return None
        try:
            d = json.loads(path.read_text(encoding="utf-8"))
            if d.pop("format") != FORMAT or d.pop("schema_version") != SCHEMA_VERSION:
                raise ValueError
            return Data(**{**d, "pieces": tuple(d["pieces"]), "results": tuple(d["results"])})
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}: no data of a reproduction (version {SCHEMA_VERSION}); delete it") from None

    def read_if(self, key: Key) -> Data | None:
        """Return an item's data if they were computed with this key."""
        data = self.read(key.item)
        if data is None or (data.size, data.seed, data.settings) != (key.size, key.seed, plain(key.settings)):
            return None
        return data if data.origin.get("sources") == key.sources else None

    def write(self, key: Key, data: Data) -> None:
        """Keep a finished item; its pieces go."""
        fields = {name: getattr(data, name) for name in Data.__slots__}
        text = dumps({"format": FORMAT, "schema_version": SCHEMA_VERSION, **fields})
        atomic_write(self.data_path(key.item), lambda part: part.write_text(text, encoding="utf-8"))
        shutil.rmtree(self.folder / ".pieces" / key.item, ignore_errors=True)
        pieces = self.folder / ".pieces"
        if pieces.is_dir() and not any(pieces.iterdir()):
            pieces.rmdir()
