"""The JSON header of a file of cluster runs: its schema, checked by pydantic so that an error names the bad entry."""

from __future__ import annotations

__all__ = ["SCHEMA_FILE", "ClusterHeader", "GapFacts", "NodeRunFacts", "RunFacts", "parse_cluster_header"]

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tileq_engine.run_header import CLUSTER_FORMAT, FORMAT, TenantsHeader, read_header

SCHEMA_VERSION: Final = 1
SCHEMA_FILE = Path(__file__).with_name("header.schema.json")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class GapFacts(_Strict):
    """What the arrays of a gap record do not tell; `sums` are count, sum, least and largest of each group."""

    exact: bool
    group_names: list[str]
    sums: list[tuple[int, int, int, int]]


class NodeRunFacts(_Strict):
    """One replica: everything of its record that is not an array."""

    end_ps: int = Field(ge=0)
    counters: dict[str, int]
    integrals: dict[str, int]
    stride: int = Field(ge=1)
    gaps: GapFacts
    hits: bool = False
    tenants: TenantsHeader | None = None
    bottlenecks: bool = False


class RunFacts(_Strict):
    """One replication; its arrays are run/<place>/...; `cluster` is what `recorded.cluster_facts` returns."""

    cluster: dict[str, JsonValue]
    class_names: list[str]
    rate_per_s: float | None
    seed: int = Field(ge=0)
    mode: str
    stop_reason: str
    end_ps: int = Field(ge=0)
    block_tokens: int | None = Field(default=None, ge=1)
    nodes: list[NodeRunFacts]
    gaps: GapFacts
    counters: dict[str, int]
    notes: list[str]


class ClusterHeader(_Strict):
    """Everything of a file of cluster runs that is not an array."""

    format: Literal["tileq-cluster-run"] = CLUSTER_FORMAT
    schema_version: Literal[1] = SCHEMA_VERSION
    runs: list[RunFacts] = Field(min_length=1)


def parse_cluster_header(text: str, source: str) -> ClusterHeader:
    """Return the header read from JSON text; `source` names the file in errors."""
    return read_header(
        text,
        source,
        ClusterHeader,
        what="a saved run of a cluster",
        writer="ClusterRun.save",
        another=(FORMAT, "holds the run of one engine; read it with Run.load"),
    )
