"""The JSON header of a saved run: its schema, checked by pydantic so that an error names the path of the bad entry."""

from __future__ import annotations

__all__ = [
    "CLUSTER_FORMAT",
    "FORMAT",
    "SCHEMA_FILE",
    "SCHEMA_VERSION",
    "RunHeader",
    "header_of",
    "info_of",
    "parse_header",
    "read_header",
]

import json
import math
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from tileq_engine.run import Run, RunInfo, Slo
from tileq_theory.errors import InputError

FORMAT: Final = "tileq-run"
CLUSTER_FORMAT: Final = "tileq-cluster-run"  # of `tileq_engine.cluster.header`
SCHEMA_VERSION: Final = 1
SCHEMA_FILE = Path(__file__).with_name("run_header.schema.json")
Header = TypeVar("Header", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SloHeader(_Strict):
    """Limits of one tier, seconds; null where there is none."""

    ttft_s: float | None = None
    tbt_s: float | None = None
    e2e_s: float | None = None


class GapHeader(_Strict):
    """One gap group; its arrays are gaps/<place>/...: exact pairs (kind "pairs") or a histogram (kind "histogram")."""

    class_index: int = Field(ge=0)
    tier: int = Field(ge=0)
    kind: Literal["pairs", "histogram"]
    sub_bins: int = Field(default=0, ge=0)
    sum_ps: int = Field(default=0, ge=0)
    min_ps: int = Field(default=0, ge=0)
    max_ps: int = Field(default=0, ge=0)
    mean_exact: bool = True


class InfoHeader(_Strict):
    """`RunInfo` as it is stored."""

    policy: str
    end_ps: int = Field(ge=0)
    stop_reason: str
    policy_config: dict[str, JsonValue]
    rate_per_s: float | None
    class_names: list[str]
    tier_names: list[str]
    slo: list[SloHeader]
    token_convention: Literal["engine", "paper"]
    kv_blocks_total: int = Field(ge=0)
    block_tokens: int = Field(ge=1)
    max_sequences: int = Field(ge=0)
    token_budget: int = Field(ge=0)
    sample_every: int = Field(ge=1)
    gap_window_ps: tuple[int, int] | None
    seed: int | None
    replication: int | None
    iteration_time: dict[str, JsonValue]
    workload: dict[str, JsonValue]
    provenance: dict[str, JsonValue]
    warnings: list[str]


class TenantsHeader(_Strict):
    """Who the tenants of a run were; their arrays are tenants/...."""

    names: list[str]
    weights: list[float]
    prompt_price: float
    output_price: float


class RunHeader(_Strict):
    """Everything of a run that is not an array."""

    format: Literal["tileq-run"] = FORMAT
    schema_version: Literal[1] = SCHEMA_VERSION
    info: InfoHeader
    counters: dict[str, int]
    gaps: list[GapHeader]
    tenants: TenantsHeader | None = None


def header_of(run: Run) -> RunHeader:
    """Return the header of a run; configuration that is not JSON data raises `InputError`."""
    info: dict[str, Any] = {name: getattr(run.info, name) for name in InfoHeader.model_fields}
    info["slo"] = [s.to_dict() for s in run.info.slo]
    gaps = [
        {
            "class_index": g.class_index,
            "tier": g.tier,
            "kind": "pairs" if g.gaps.exact else "histogram",
            "sub_bins": getattr(g.gaps, "sub_bins", 0),
            "sum_ps": g.gaps.sum_ps,
            "min_ps": g.gaps.min_ps,
            "max_ps": g.gaps.max_ps,
            "mean_exact": g.gaps.mean_exact,
        }
        for g in run.gaps
    ]
    record = run.tenants
    tenants = None if record is None else {name: getattr(record, name) for name in TenantsHeader.model_fields}
    try:
        facts = {"info": info, "counters": dict(run.counters), "gaps": gaps, "tenants": tenants}
        plain = json.loads(json.dumps(facts, allow_nan=False))
        return RunHeader.model_validate(plain)
    except (TypeError, ValueError) as error:
        raise InputError(f"the run's facts cannot be stored as JSON: {first_fault(error)}") from None


def first_fault(error: Exception) -> str:
    if isinstance(error, ValidationError):
        item = error.errors()[0]
        return f"{'.'.join(map(str, item['loc'])) or 'header'}: {item['msg']}"
    return str(error)


def parse_header(text: str, source: str) -> RunHeader:
    """Return the header read from JSON text; `source` names the file in errors."""
    return read_header(
        text,
        source,
        RunHeader,
        what="a saved run",
        writer="Run.save",
        another=(CLUSTER_FORMAT, "holds the runs of a cluster; read it with ClusterRun.load, and take its .run()"),
    )


def read_header(
    text: str, source: str, kind: type[Header], *, what: str, writer: str, another: tuple[str, str]
) -> Header:
    """Return a header of that kind read from JSON text; each fault is one line that names the file.

    Parameters
    ----------
    what, writer
        What the file should hold, and what writes such files.
    another
        The format of the files that are mistaken for these, and what is said of one.
    """
    expected = f"expected a file written by {writer}"
    try:
        data = json.loads(text)
    except ValueError:
        raise InputError(f"{source}: the header is not JSON; {expected}") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found == another[0]:
        raise InputError(f"{source}: {another[1]}")
    if found != kind.model_fields["format"].default:
        raise InputError(f"{source}: not {what}; {expected}")
    version, known = data.get("schema_version"), kind.model_fields["schema_version"].default
    if version != known:
        raise InputError(f"{source}: schema_version is {version!r}; this version of Tileq reads {known}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{source}: {first_fault(error)}") from None


def info_of(header: RunHeader) -> RunInfo:
    """Return the `RunInfo` that a header stores."""
    data = header.info.model_dump()
    limits = [{k: math.inf if v is None else v for k, v in item.items()} for item in data.pop("slo")]
    for name in ("class_names", "tier_names", "warnings"):
        data[name] = tuple(data[name])
    return RunInfo(slo=tuple(Slo(**item) for item in limits), **data)
