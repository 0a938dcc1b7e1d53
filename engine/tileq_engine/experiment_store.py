r"""Where the results of an experiment are kept: one small JSON file a point, written as it finishes.

A folder holds `manifest.json` (what the experiment is) and one file a point, each written atomically, so a killed
experiment loses at most the points that were running and a second start computes only what is missing. The manifest
pins the seed and every setting, policy and workload by its configuration; more rates, replications, policies or
workloads may be added later, but the same name with another configuration, another seed or other settings is an
error, never a mixture.
"""

from __future__ import annotations

__all__ = ["ResultStore", "digest", "settings_of"]

import hashlib
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tileq_engine.run_io import atomic_write
from tileq_engine.run_raw import plain
from tileq_theory.errors import InputError

FORMAT = "tileq-experiment"
SCHEMA_VERSION = 1
_NAMED = ("policies", "workloads")


def digest(value: Any) -> str:
    """Return 12 hexadecimal digits that tell plain data apart (keys in any order)."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()[:12]


def settings_of(simulate: Any) -> Any:
    """Return the configuration that a simulation carries: its `to_dict`, inside a method or partial too; else None."""
    if isinstance(simulate, partial):
        inner = settings_of(simulate.func)
        return None if inner is None else plain({"of": inner, "arguments": simulate.args, "options": simulate.keywords})
    owner = getattr(simulate, "__self__", simulate)
    return plain(owner) if hasattr(owner, "to_dict") else None


def _write_json(path: Path, data: Any) -> None:
    text = json.dumps(data, allow_nan=False)
    atomic_write(path, lambda part: part.write_text(text, encoding="utf-8"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{path}: not readable as JSON; delete it to compute that point again") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("schema_version") != SCHEMA_VERSION:
        raise InputError(f"{path}: not a file of a Tileq experiment (version {SCHEMA_VERSION}); choose another folder")
    return data


class ResultStore:
    """The folder of an experiment.

    Parameters
    ----------
    folder
        Created when absent. None: nothing is kept.
    manifest
        `settings` (anything), `policies` and `workloads` (name -> configuration), plain data or objects with `to_dict`.

    Raises
    ------
    InputError
        When the folder holds another experiment.
    """

    def __init__(self, folder: str | Path | None, manifest: Mapping[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        self.manifest: dict[str, Any] = plain(manifest)
        if self.folder is not None:
            self._open(self.folder)

    def _open(self, folder: Path) -> None:
        path = folder / "manifest.json"
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; expected a folder for the experiment's results")
        if path.exists():
            self.manifest = self._joined(_read_json(path)["manifest"], path)
        elif folder.is_dir() and any(folder.glob("point-*.json")):
            raise InputError(f"{folder} holds results without manifest.json; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(path, {"format": FORMAT, "schema_version": SCHEMA_VERSION, "manifest": self.manifest})

    def _joined(self, stored: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Return the stored manifest with this one's additions; anything that differs is an error that names it."""
        for key in sorted(set(stored) | set(self.manifest)):
            if key not in _NAMED and stored.get(key) != self.manifest.get(key):
                what = _difference(key, stored.get(key), self.manifest.get(key))
                raise InputError(f"{path}: {what}; choose another folder, or delete this one to start again")
        joined = dict(self.manifest)
        for key in _NAMED:
            old, new = dict(stored.get(key, {})), dict(self.manifest.get(key, {}))
            for name in old.keys() & new.keys():
                if old[name] != new[name]:
                    what = _difference(f"{key}.{name}", old[name], new[name])
                    raise InputError(f"{path}: {what}; choose another folder, or give it another name")
            joined[key] = old | new
        return joined

    def path(self, point: Mapping[str, Any]) -> Path | None:
        """Return the file of a point."""
        if self.folder is None:
            return None
        words = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", str(value))[:40] for value in point.values())
        return self.folder / f"point-{words}-{digest(point)}.json"

    def read(self, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the stored document of a point, or None when it is not there."""
        path = self.path(point)
        if path is None or not path.exists():
            return None
        data = _read_json(path)
        if data.get("point") != plain(point):
            raise InputError(f"{path}: holds another point, {data.get('point')}; the folder was tampered with")
        document = data.get("document")
        if not isinstance(document, dict):
            raise InputError(f"{path}: has no document; delete it to compute that point again")
        return document

    def write(self, point: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        """Write the document of a point (whole or not at all)."""
        path = self.path(point)
        if path is not None:
            data = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "point": plain(point), "document": document}
            _write_json(path, data)

    def run_path(self, point: Mapping[str, Any]) -> Path | None:
        """Return where the full run of a point may be saved."""
        path = self.path(point)
        return None if path is None else path.with_suffix(".npz")


def _difference(name: str, old: Any, new: Any) -> str:
    """Return one line that names the first entry in which two pieces of plain data differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(set(old) | set(new)):
            if old.get(key) != new.get(key):
                return _difference(f"{name}.{key}", old.get(key), new.get(key))
    return f"{name} is {new!r} now but was {old!r} when the folder was begun"
