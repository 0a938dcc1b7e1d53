"""The file edge of clusters: a small TOML (or JSON) of nodes, routers, link and failures, checked strictly.

router = "power_of_two"

[[node]]
name = "fast"
gpu = "h100-sxm"
model = "llama-3.1-8b"
count = 2
"""

from __future__ import annotations

__all__ = ["ClusterFile", "cluster_file_schema", "read_cluster_file"]

from collections.abc import Mapping
from functools import cache
from os import PathLike
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError, near_matches

if TYPE_CHECKING:
    from pydantic import BaseModel

ClusterFile = Mapping[str, Any]
SCHEMA_VERSION = 1


@cache
def _document() -> type[BaseModel]:
    """Return the pydantic class of the file; built on first use, since pydantic is slow to import."""
    from typing import Annotated, Literal

    from pydantic import ConfigDict, Field, create_model

    forbid = ConfigDict(extra="forbid", strict=True)
    above = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
    least = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
    whole = Annotated[int, Field(ge=1, strict=True)]
    word = Annotated[str, Field(min_length=1)]
    node: dict[str, Any] = {
        "name": (word, Field(description="its name; replicas of it are name-0, name-1, ...")),
        "gpu": (word, Field("h100-sxm", description="catalogue name or file")),
        "model": (word, Field("llama-3.1-8b", description="catalogue name or file")),
        "tp": (whole, Field(1, description="GPUs that share one copy of the model")),
        "dtype": (word, Field("bf16", description="number format of the weights")),
        "kv_dtype": (word | None, Field(None, description="number format of the KV cache")),
        "memory_utilisation": (above, Field(0.9, description="share of GPU memory used")),
        "times": (Literal["corrected", "datasheet"], Field("corrected", description="roofline, without a calibration")),
        "calibration": (word | None, Field(None, description="measured iteration time: name or file")),
        "policy": (word, Field("sarathi", description="name:parameter=value:...")),
        "role": (Literal["both", "prefill", "decode"], Field("both", description="phases that run here")),
        "count": (whole, Field(1, description="equal replicas")),
        "weight": (above, Field(1.0, description="share of the router's requests, beside the others'")),
        "tenants": (list[str | int], Field([], description="classes sent here by the router tenant; empty: all")),
        "token_budget": (whole | None, Field(None, description="tokens of an iteration; the plan's")),
        "max_num_seqs": (whole | None, Field(None, description="residents at most; the plan's")),
        "kv_tokens": (whole | None, Field(None, description="KV capacity, tokens; the GPU's")),
        "queue_limit": (whole | None, Field(None, description="requests in the node at which it is full")),
        "prefix_cache": (bool, Field(False, description="keep the KV of prompts for others with the same prefix")),
        "preemption": (Literal["recompute", "swap", "none"], Field("recompute", description="without a free block")),
        "reservation": (
            Literal["policy", "optimistic", "prompt", "conservative"],
            Field("policy", description="blocks taken at admission"),
        ),
        "watermark": (least, Field(0.0, description="share of the blocks that an admission leaves free")),
        "backpressure": (word | None, Field(None, description="reject:waiting=64, shrink:kv=0.9:tokens=128, ...")),
        "control_tbt_s": (above | None, Field(None, description="the budget is moved so that TBT keeps this limit")),
        "swap_gb_per_s": (above, Field(25.0, description="host link of a GPU, for swap")),
        "start_s": (least, Field(0.0, description="when it comes up first")),
        "warm_s": (least, Field(0.0, description="seconds after a start for which iterations take longer")),
        "warm_factor": (above, Field(1.0, description="how many times as long, 1 or more")),
        "mtbf_s": (above | None, Field(None, description="mean time until it fails")),
        "mttr_s": (above | None, Field(None, description="mean time until it is up again")),
    }
    link: dict[str, Any] = {
        "gb_per_s": (above, Field(description="what one node's port carries, 10^9 bytes a second")),
        "fabric_gb_per_s": (above | None, Field(None, description="what all transfers together may take")),
        "latency_s": (least, Field(0.0, description="fixed time of a transfer")),
    }
    failure: dict[str, Any] = {
        "node": (word, Field(description="name of one replica")),
        "at_s": (least, Field(description="when it fails")),
        "back_s": (above | None, Field(None, description="when it is up again; never")),
    }
    made: dict[str, Any] = {
        name: create_model(name, __config__=forbid, **fields)
        for name, fields in (("Node", node), ("Link", link), ("Failure", failure))
    }
    whole_file: dict[str, Any] = {
        "schema_version": (Literal[1], Field(1, description="version of this layout")),
        "node": (GenericAlias(list, (made["Node"],)), Field([], description="the nodes, at least one")),
        "router": (word, Field("jsq", description="name:parameter=value:..., see docs/command.md")),
        "decode_router": (word, Field("jsq", description="among decode nodes, for requests handed over")),
        "link": (made["Link"] | None, Field(None, description="KV transfers from prefill to decode nodes")),
        "on_full": (Literal["reject", "reroute", "hold"], Field("reject", description="at a node's queue_limit")),
        "rebalance_s": (above | None, Field(None, description="global placement step every so many seconds")),
        "rebalance_gap": (
            Annotated[int, Field(ge=2, strict=True)],
            Field(2, description="difference of queues it evens"),
        ),
        "failure": (GenericAlias(list, (made["Failure"],)), Field([], description="planned failures")),
    }
    return create_model("ClusterFile", __config__=forbid, **whole_file)


def cluster_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file."""
    return _document().model_json_schema()


def read_cluster_file(given: str | PathLike[str] | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return what a cluster file, or a mapping of the same layout, says, with every default filled in; and its label.

    Raises
    ------
    InputError
        Naming the file, the node and the key: an unknown key (with the nearest known one), a missing one, a value out
        of its domain, no nodes.
    """
    from pydantic import ValidationError

    from tileq_theory.hardware.files import read_toml_or_json, user_path

    if isinstance(given, Mapping):
        raw, label = dict(given), "cluster"
    else:
        path = user_path(str(given))
        raw, label = read_toml_or_json(path), path.name
    try:
        found = _document()(**raw).model_dump()
    except ValidationError as error:
        raise InputError(f"{label}: {_told(raw, error.errors()[0])}") from None
    except TypeError as error:  # keys that are no words
        raise InputError(f"{label}: {error}") from None
    if not found["node"]:
        raise InputError(f"{label}: no [[node]] is given; expected at least one")
    return found, label


# pydantic's words name its own classes, and not what stands in a file
_EXPECTED: Mapping[str | tuple[str, str], str] = {
    ("list_type", "node"): "expected tables, each under a line [[node]]",
    ("list_type", "failure"): "expected tables, each under a line [[failure]]",
    ("list_type", "tenants"): 'expected a list of classes, as ["chat"]',
    ("model_type", "link"): "expected one table, under a line [link]",
    "model_type": "expected a table of keys and values",
    "string_too_short": "expected at least one character",
}


def _told(raw: Mapping[str, Any], error: Any) -> str:
    """Return one line for pydantic's first error: where, what was given, what is expected."""
    place = [part for part in error["loc"] if not str(part).startswith(("function-", "nullable"))]
    where = _where(raw, place)
    key = str(place[-1]) if place else ""
    if error["type"] == "extra_forbidden":
        return f"{where}unknown key {key!r}; {near_matches('keys', key, _keys(place))}"
    if error["type"] == "missing":
        return f"{where}{key} is missing; expected it ({_meaning(place)})"
    told = _EXPECTED.get((error["type"], key)) or _EXPECTED.get(error["type"])
    told = told or error["msg"].replace("Input should be", "expected")
    return f"{where}{_dotted(place)} is {error['input']!r}; {told[0].lower()}{told[1:]}"


def _where(raw: Mapping[str, Any], place: list[Any]) -> str:
    """Return "node 2 (fast): " for a place inside a list of tables, "link: " inside a table."""
    if len(place) >= 2 and place[0] in ("node", "failure") and isinstance(place[1], int):
        table = raw[place[0]][place[1]]
        name = table.get("name", table.get("node")) if isinstance(table, Mapping) else None
        return f"{place[0]} {place[1] + 1}{f' ({name})' if isinstance(name, str) else ''}: "
    return "link: " if len(place) >= 2 and place[0] == "link" else ""


def _dotted(place: list[Any]) -> str:
    inside = place[2:] if place and place[0] in ("node", "failure") and len(place) > 2 else place
    inside = inside[1:] if len(inside) > 1 and inside[0] == "link" else inside
    # beyond the key stand the members of a union, which are no part of the file
    return str(inside[0]) if inside else str(place[0])


def _fields(place: list[Any]) -> Mapping[str, Any]:
    kind = {"node": "Node", "failure": "Failure", "link": "Link"}.get(str(place[0])) if len(place) > 1 else None
    schema = cluster_file_schema()
    found: Mapping[str, Any] = schema["properties"] if kind is None else schema["$defs"][kind]["properties"]
    return found


def _keys(place: list[Any]) -> list[str]:
    return list(_fields(place))


def _meaning(place: list[Any]) -> str:
    return str(_fields(place).get(str(place[-1]), {}).get("description", "see docs/command.md"))
