"""The shipped GPU catalogue (`data/gpus.toml`) and look-up by name, alias or file."""

from __future__ import annotations

__all__ = ["gpu_names", "load_gpu"]

import re
import tomllib
from functools import cache
from importlib.resources import files
from os import PathLike, fspath
from typing import Any

from tileq_theory.errors import InputError, near_matches
from tileq_theory.hardware.files import looks_like_path, user_path
from tileq_theory.hardware.gpu import COMPUTE_FORMATS, Gpu
from tileq_theory.hardware.gpu_file import read_gpu_file
from tileq_theory.provenance import Provenance

_SCALED = {
    "l2_mb": ("l2_bytes", 1e6),
    "link_gb_s": ("link_bytes_per_s", 1e9),
    "tdp_w": ("tdp_w", 1.0),
    "measured_bf16_tflops": ("measured_bf16_flops", 1e12),
    "memory_mib": ("memory_bytes", float(2**20)),
    "bandwidth_gb_s": ("bandwidth_bytes_per_s", 1e9),
}
_NOT_IN_ANY_FORMULA = ("l2_mb", "tdp_w", "measured_bf16_tflops")
_BRANDS = re.compile(r"\b(nvidia|amd|geforce|tesla|instinct)\b")


def _key(name: str) -> str:
    """Return the form in which names are compared: lower case, letters and digits only, no brand."""
    return re.sub(r"[^a-z0-9]", "", _BRANDS.sub("", name.lower()))


@cache
def _rows() -> dict[str, dict[str, Any]]:
    text = (files("tileq_theory") / "data" / "gpus.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _slugs() -> dict[str, str]:
    return {_key(name): slug for slug, row in _rows().items() for name in (slug, *row["aliases"])}


@cache
def _gpu(slug: str) -> Gpu:
    row = _rows()[slug]
    facts = {name: fact for name, fact in row.items() if isinstance(fact, dict)}
    peaks = {k: facts[f"{k}_tflops"]["value"] * 1e12 for k in COMPUTE_FORMATS if f"{k}_tflops" in facts}
    scaled = {name: facts[key]["value"] * unit for key, (name, unit) in _SCALED.items() if key in facts}
    unverified = tuple(name for name, fact in facts.items() if not fact["checked"])
    notes = [row["note"]] if "note" in row else []
    doubtful = [name for name in unverified if name not in _NOT_IN_ANY_FORMULA]
    if doubtful:
        notes.append(f"not confirmed by a second source: {', '.join(doubtful)}")
    return Gpu(
        name=slug,
        arch=row["arch"],
        peak_flops=peaks,
        sources={name: fact["source"] for name, fact in facts.items()},
        unverified=unverified,
        provenance=Provenance("datasheet", f"GPU catalogue, row {slug}", tuple(notes)),
        **scaled,
    )


def gpu_names() -> tuple[str, ...]:
    """Return the names of all GPUs of the catalogue, sorted."""
    return tuple(sorted(_rows()))


def load_gpu(name_or_path: str | PathLike[str]) -> Gpu:
    """Return a GPU of the catalogue by name or alias, or the one described by a .toml or .json file.

    Names are compared without case, spaces, dashes and brand words, so the driver's own names work.

    Raises
    ------
    InputError
        Unknown name (with near matches), a folder, or a file that does not describe a GPU.

    Examples
    --------
    >>> load_gpu("NVIDIA H100 80GB HBM3").name
    'h100-sxm'
    """
    text = fspath(name_or_path)
    slug = _slugs().get(_key(text)) if _key(text) else None
    if slug is not None and not isinstance(name_or_path, PathLike):
        return _gpu(slug)
    if isinstance(name_or_path, PathLike) or looks_like_path(text):
        return read_gpu_file(user_path(text))
    raise InputError(f"GPU {text!r} is not in the catalogue; {near_matches('GPUs', text, gpu_names())}")
