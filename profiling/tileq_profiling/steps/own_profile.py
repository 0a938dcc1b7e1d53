"""Profiles that this project wrote (`tileq profile`, `save_profile`): the header, or the table beside it."""

from __future__ import annotations

__all__ = ["READERS"]

from pathlib import Path

from tileq_profiling.profile import load_profile
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, header_has
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish

_KIND = "tileq profile"


def _sniff(place: Place) -> float:
    if place.is_folder:
        return 0.0
    if place.source is not None and place.source.is_json:
        return 20.0 if place.source.first.get("kind") == _KIND else 0.0
    if Path(str(place.path) + ".json").is_file():
        return 20.0
    # a table that lost its header is still ours: the reader then says which file is missing
    return 1.0 if header_has(place, "tokens", "seconds", "repeats") else 0.0


def _read(place: Place, options: ProfileOptions) -> ProfileReading:
    return finish("tileq", [Part({}, load_profile(place.path))], joinable=True)


READERS = (
    ProfileReader("tileq", "a profile that this project wrote (CSV or Parquet with a JSON header)", _sniff, _read),
)
