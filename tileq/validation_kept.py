"""Results of a validation that are kept in a folder as they come, so that an interrupted one goes on."""

from __future__ import annotations

__all__ = ["Kept"]

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tileq.plain import plain
from tileq_theory.errors import InputError

_HEADER = "validation.json"


class Kept:
    """Documents by key, in a folder, or (None) in memory alone.

    Parameters
    ----------
    folder
        Made when it is not there.
    question
        What is validated; a folder of another question is refused.
    resume
        False: whatever the folder holds is done anew.

    Examples
    --------
    >>> Kept(None, {}, True).or_made("edge", lambda: {"edge_per_s": 2.0})
    {'edge_per_s': 2.0}
    """

    def __init__(self, folder: Path | None, question: Mapping[str, Any], resume: bool) -> None:
        self.folder = folder
        if folder is None:
            return
        from tileq.experiments import ready_folder

        ready_folder(folder)
        header = json.loads(json.dumps(plain({"kind": "tileq validation", "schema_version": 1, **question})))
        path = folder / _HEADER
        if resume and path.is_file():
            kept = _object_in(path)
            for key, value in header.items():
                if kept.get(key) != value:
                    raise InputError(
                        f"{folder} holds a validation with {key} {kept.get(key)!r}, now it is {value!r}; "
                        "give another folder, or begin anew (--anew)"
                    )
            return
        for old in folder.glob("*.kept.json"):
            old.unlink()
        path.write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")

    def or_made(self, key: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return what is kept under `key`; where there is nothing, make it and keep it."""
        path = None if self.folder is None else self.folder / f"{key}.kept.json"
        if path is not None and path.is_file():
            return _object_in(path)
        made: dict[str, Any] = plain(dict(make()))
        if path is not None:
            fresh = path.with_name(path.name + ".new")
            fresh.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            fresh.replace(path)
        return made

    def finish(self, document: Mapping[str, Any]) -> None:
        """Write the whole document into the folder."""
        if self.folder is not None:
            (self.folder / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _object_in(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; a file that was written halfway, or by somebody else, is refused."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); remove it to have it done again, or begin anew (--anew)"
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no JSON object; remove it to have it done again, or begin anew (--anew)")
    return found
