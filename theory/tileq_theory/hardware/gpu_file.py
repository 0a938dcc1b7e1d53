"""The file edge of `Gpu`: a user's own GPU as a small TOML or JSON file, checked by pydantic.

schema_version = 1
name = "my-gpu"
bf16_tflops = 400.0
memory_gib = 64.0
bandwidth_gb_s = 2000.0
"""

from __future__ import annotations

__all__ = ["gpu_file_schema", "read_gpu_file"]

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError
from tileq_theory.hardware.files import read_toml_or_json
from tileq_theory.hardware.gpu import COMPUTE_FORMATS, Gpu
from tileq_theory.provenance import Provenance

if TYPE_CHECKING:
    from pydantic import BaseModel

SCHEMA_VERSION = 1


@cache
def _document() -> type[BaseModel]:
    """Return the pydantic class of the file; built on first use, since pydantic is slow to import."""
    from typing import Annotated, Literal

    from pydantic import ConfigDict, Field, create_model

    # a fact outside this range is a slip of units, not a GPU: the smallest card and the largest rack lie well inside
    number = Annotated[float, Field(ge=1e-3, le=1e7, allow_inf_nan=False, strict=True)]
    fields: dict[str, Any] = {
        "schema_version": (Literal[1], Field(description="version of this layout")),
        "name": (Annotated[str, Field(min_length=1)], Field(description="any name")),
        "arch": (str, Field("unknown", description="architecture family")),
        **{
            f"{k}_tflops": (
                number | None,
                Field(None, description=f"dense {k} peak with fp32 accumulation, 1e12 FLOP/s"),
            )
            for k in COMPUTE_FORMATS
        },
        "memory_gib": (number | None, Field(None, description="memory the driver reports, GiB; or give memory_mib")),
        "memory_mib": (number | None, Field(None, description="memory the driver reports, MiB; or give memory_gib")),
        "bandwidth_gb_s": (number, Field(description="memory bandwidth, 1e9 bytes/s")),
        "l2_mb": (number | None, Field(None, description="L2 cache, MB")),
        "link_gb_s": (number | None, Field(None, description="GPU-to-GPU bandwidth in one direction, 1e9 bytes/s")),
        "tdp_w": (number | None, Field(None, description="board power, W")),
        "measured_bf16_tflops": (number | None, Field(None, description="best measured bf16 GeMM rate, 1e12 FLOP/s")),
        "source": (str, Field("", description="where the facts came from")),
    }
    return create_model("GpuFile", __config__=ConfigDict(extra="forbid"), **fields)


def gpu_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file; `data/gpu.schema.json` is a copy of it."""
    return _document().model_json_schema()


def read_gpu_file(path: Path) -> Gpu:
    """Return the GPU described by a .toml or .json file; anything wrong raises `InputError` naming file and field."""
    from pydantic import ValidationError

    raw = read_toml_or_json(path)
    booleans = [k for k, v in raw.items() if isinstance(v, bool)]
    if booleans:
        raise InputError(f"{path}: {booleans[0]} is a boolean; expected a number or a text")
    try:
        facts = _document()(**raw).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        given = f" (given {first['input']!r})" if first["type"] not in {"missing", "extra_forbidden"} else ""
        raise InputError(f"{path}: {where}: {first['msg']}{given}") from None
    return _gpu(path, facts)


def _gpu(path: Path, facts: dict[str, Any]) -> Gpu:
    peaks = {k: facts[f"{k}_tflops"] * 1e12 for k in COMPUTE_FORMATS if facts[f"{k}_tflops"] is not None}
    if not peaks:
        keys = ", ".join(f"{k}_tflops" for k in COMPUTE_FORMATS)
        raise InputError(f"{path}: no peak given; expected at least one of {keys}")
    if (facts["memory_gib"] is None) == (facts["memory_mib"] is None):
        raise InputError(f"{path}: expected exactly one of memory_gib and memory_mib")
    memory = facts["memory_gib"] * 2**30 if facts["memory_mib"] is None else facts["memory_mib"] * 2**20
    link, l2, measured = facts["link_gb_s"], facts["l2_mb"], facts["measured_bf16_tflops"]
    return Gpu(
        name=facts["name"],
        arch=facts["arch"],
        peak_flops=peaks,
        memory_bytes=memory,
        bandwidth_bytes_per_s=facts["bandwidth_gb_s"] * 1e9,
        l2_bytes=None if l2 is None else l2 * 1e6,
        link_bytes_per_s=None if link is None else link * 1e9,
        tdp_w=facts["tdp_w"],
        measured_bf16_flops=None if measured is None else measured * 1e12,
        provenance=Provenance("datasheet", f"{path}", (facts["source"],) if facts["source"] else ()),
    )
