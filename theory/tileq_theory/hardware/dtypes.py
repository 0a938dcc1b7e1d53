"""Number formats of weights, arithmetic and KV cache, and the bytes they take.

Names follow the engines: `bf16`, `fp16`, `fp8` and `int8` store and multiply in that format; `w8a16` and `w4a16` store
weights in 8 or 4 bits and multiply in 16 (AWQ, GPTQ, FP8 on GPUs without FP8 arithmetic).
"""

from __future__ import annotations

__all__ = ["ACTIVATION_BYTES", "WeightFormat", "kv_bytes_per_element", "weight_format", "weight_format_names"]

from dataclasses import dataclass

from tileq_theory.errors import InputError, near_matches

ACTIVATION_BYTES = 2.0  # activations, embeddings, lm_head and norms stay in 16 bits in every format below


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How the linear layers store and multiply.

    Parameters
    ----------
    name
        Canonical name.
    bytes_per_weight
        Bytes of one weight of the layers' matrices, group scales included.
    compute
        Format of the arithmetic: a key of a GPU's peaks, or "16bit" for whichever of bf16 and fp16 it has.
    """

    name: str
    bytes_per_weight: float
    compute: str


# 4-bit groups of 128 weights carry a 16-bit scale and a 4-bit zero point (the GPTQ and AWQ default).
_W4_BYTES = 0.5 + (2.0 + 0.5) / 128

_FORMATS = {
    f.name: f
    for f in (
        WeightFormat("bf16", 2.0, "bf16"),
        WeightFormat("fp16", 2.0, "fp16"),
        WeightFormat("fp8", 1.0, "fp8"),
        WeightFormat("int8", 1.0, "int8"),
        WeightFormat("w8a16", 1.0, "16bit"),
        WeightFormat("w4a16", _W4_BYTES, "16bit"),
    )
}
_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "fp8_e4m3": "fp8",
    "w8a8": "int8",
    "int4": "w4a16",
    "awq": "w4a16",
    "gptq": "w4a16",
}
_KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
_KV_ALIASES = {**_ALIASES, "fp8_e5m2": "fp8", "auto": "bf16"}


def weight_format(name: str) -> WeightFormat:
    """Return the weight format called `name`; unknown names raise `InputError` with near matches.

    Examples
    --------
    >>> weight_format("bfloat16").bytes_per_weight
    2.0
    """
    key = str(name).strip().lower()
    key = _ALIASES.get(key, key)
    if key not in _FORMATS:
        raise InputError(f"dtype is {name!r}, which is not known; {near_matches('dtypes', key, _FORMATS)}")
    return _FORMATS[key]


def weight_format_names() -> tuple[str, ...]:
    """Return the canonical names of all weight formats."""
    return tuple(_FORMATS)


def kv_bytes_per_element(name: str | None) -> float:
    """Return the bytes of one KV element: 2 for bf16, fp16 and None (as engines do by default), 1 for fp8 and int8."""
    if name is None:
        return ACTIVATION_BYTES
    key = str(name).strip().lower()
    key = _KV_ALIASES.get(key, key)
    if key not in _KV_BYTES:
        raise InputError(f"KV dtype is {name!r}, which is not known; {near_matches('KV dtypes', key, _KV_BYTES)}")
    return _KV_BYTES[key]
