"""LLMServingSim's layer profiles: dense.csv, per_sequence.csv, attention.csv of one degree, in microseconds.

attention.csv holds mixed batches: one prefill chunk after kv_prefill cached tokens together with n_decode decodes of
kv_decode context each. Operators of a layer are told from those that run once a model by their names. meta.yaml
beside or above gives device, model and versions; it is a flat list of `key: value`, read as such.
"""

from __future__ import annotations

__all__ = ["READERS"]

import re
from pathlib import Path

import numpy as np

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import OperatorReader, header_has
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.operators import Operator, OperatorKind, OperatorTable, Per
from tileq_profiling.steps.place import Place
from tileq_theory.errors import InputError

_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
_DENSE = ("layer", "tokens", "time_us")
_SEQUENCE = ("layer", "sequences", "time_us")
# once an iteration; all else once a layer (layernorm twice)
_ONCE = {"embedding", "final_layernorm", "lm_head", "sampler"}
_TWICE = {"layernorm"}
_META = re.compile(r"^(\w+):\s*'?([^'\n]*?)'?\s*$", re.MULTILINE)
_TP_FOLDER = re.compile(r"tp(\d+)")


def _named(source: Source, columns: tuple[str, ...], kind: OperatorKind) -> list[Operator]:
    numbers, texts = table_columns(source, columns[1:], columns[:1])
    names = np.array(texts[columns[0]])
    found = []
    for name in dict.fromkeys(texts[columns[0]]):
        which = names == name
        per: Per = "model" if name in _ONCE else "layer"
        shape: dict[str, float | str] = {"times": 2.0} if name in _TWICE else {}
        found.append(
            Operator(name, kind, per, numbers[columns[1]][which][:, None], numbers["time_us"][which] / 1e6, shape)
        )
    return found


def _attention(source: Source) -> list[Operator]:
    numbers, _ = table_columns(source, _ATTENTION)
    sizes = np.column_stack([numbers[name] for name in _ATTENTION[:4]])
    return [Operator("attention", "mixed attention", "layer", sizes, numbers["time_us"] / 1e6)]


def _operators(source: Source) -> list[Operator]:
    header = source.header
    if header is not None and header.has(*_ATTENTION):
        return _attention(source)
    if header is not None and header.has(*_DENSE):
        return _named(source, _DENSE, "tokens")
    if header is not None and header.has(*_SEQUENCE):
        return _named(source, _SEQUENCE, "sequences")
    raise InputError(f"{source.name} is no table of this profiler; expected {', '.join(_DENSE)} or the like")


def _folder(place: Place) -> Path:
    """Return the folder of one tensor parallel degree."""
    found = [path.parent for path in place.files("dense.csv")]
    if len(found) != 1:
        told = ", ".join(str(path.relative_to(place.path)) for path in found) or "none"
        raise InputError(f"{place.name}: {len(found)} folders with a dense.csv ({told}); pass the one of your degree")
    return found[0]


def _conditions(folder: Path, source: str) -> Conditions:
    degree = _TP_FOLDER.fullmatch(folder.name)
    facts: dict[str, str] = {}
    for where in (folder, folder.parent):
        if (where / "meta.yaml").is_file():
            facts = dict(reversed(_META.findall((where / "meta.yaml").read_text("utf-8"))))
            break
    libraries = {name: facts[f"{name}_version"] for name in ("vllm", "cuda") if facts.get(f"{name}_version")}
    return Conditions(
        device=facts.get("gpu", ""),
        model=facts.get("model", ""),
        dtype=facts.get("variant", "bf16"),
        tp=int(degree.group(1)) if degree else 1,
        libraries=libraries,
        source=source,
    )


def _read(place: Place) -> OperatorTable:
    if not place.is_folder:
        operators = _operators(place.text())
        return OperatorTable(tuple(operators), "llmservingsim-operators", _conditions(place.path.parent, place.name))
    folder, operators, warnings = _folder(place), [], []
    for name in ("dense.csv", "per_sequence.csv", "attention.csv"):
        if (folder / name).is_file():
            operators += _operators(Source(folder / name))
        else:
            warnings.append(f"no {name}: its operators must come from elsewhere")
    return OperatorTable(tuple(operators), "llmservingsim-operators", _conditions(folder, place.name), tuple(warnings))


def _sniff(place: Place) -> float:
    if place.is_folder:
        return 5.0 if place.file("dense.csv") is not None else 0.0
    return 5.0 if any(header_has(place, *names) for names in (_ATTENTION, _DENSE, _SEQUENCE)) else 0.0


READERS = (
    OperatorReader(
        "llmservingsim-operators", "LLMServingSim layer profile (CSV or their folder; microseconds)", _sniff, _read
    ),
)
