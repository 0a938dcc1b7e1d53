"""The shipped model catalogue (`data/models.toml`) and look-up by name, alias or config.json."""

from __future__ import annotations

__all__ = ["load_model", "model_names"]

import re
import tomllib
from functools import cache
from importlib.resources import files
from os import PathLike, fspath
from typing import Any

from tileq_theory.errors import InputError, near_matches
from tileq_theory.hardware.files import is_there, looks_like_path, user_path
from tileq_theory.hardware.hf_config import read_config
from tileq_theory.hardware.model import Model
from tileq_theory.provenance import Provenance

_NOT_SHAPE = ("aliases", "source", "also", "note", "published_params_b")


def _key(name: str) -> str:
    """Return the form in which names are compared: lower case, letters and digits (and the dot of a version) only."""
    return re.sub(r"[^a-z0-9.]", "", name.lower().rsplit("/", 1)[-1])


@cache
def _rows() -> dict[str, dict[str, Any]]:
    text = (files("tileq_theory") / "data" / "models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _slugs() -> dict[str, str]:
    rows = _rows().items()
    return {_key(name): slug for slug, row in rows for name in (slug, row["hf_id"], *row["aliases"])}


@cache
def _model(slug: str) -> Model:
    row = _rows()[slug]
    also = [f"{fact}: {source}" for fact, source in row.get("also", {}).items()]
    notes = tuple(also + ([row["note"]] if "note" in row else []))
    shape = {key: value for key, value in row.items() if key not in _NOT_SHAPE}
    return Model(
        name=slug, provenance=Provenance("datasheet", f"config.json by way of {row['source']}", notes), **shape
    )


def model_names() -> tuple[str, ...]:
    """Return the names of all models of the catalogue, sorted."""
    return tuple(sorted(_rows()))


def load_model(name_or_path: str | PathLike[str]) -> Model:
    """Return a model of the catalogue by name, hub id or alias, or the one of a config.json (or a folder holding one).

    Raises
    ------
    InputError
        Unknown name (with near matches), a folder without config.json, a malformed file, an unsupported architecture,
        a missing key.

    Examples
    --------
    >>> load_model("meta-llama/Llama-3.1-8B").params_total
    8030261248
    """
    text = fspath(name_or_path)
    slug = _slugs().get(_key(text)) if _key(text) else None
    if slug is not None and not isinstance(name_or_path, PathLike) and not _is_local(text):
        return _model(slug)
    if isinstance(name_or_path, PathLike) or looks_like_path(text):
        return read_config(user_path(text))
    raise InputError(
        f"model {text!r} is not in the catalogue and no file of that name exists; "
        f"{near_matches('models', text.rsplit('/', 1)[-1], model_names())}"
    )


def _is_local(text: str) -> bool:
    """Return whether `text` is a path to a file, or to a folder that holds a config.json."""
    path = user_path(text)
    return text.startswith((".", "/", "~")) or (is_there(path) and (path.is_file() or (path / "config.json").is_file()))
