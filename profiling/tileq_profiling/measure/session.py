"""What a session of measurements holds once its journal is read: the profile, the staircase, the device's figures."""

from __future__ import annotations

__all__ = ["Session", "read_session"]

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_profiling.measure.batch import Batch
from tileq_profiling.profile import Conditions, Profile
from tileq_theory.errors import InputError, no_such_file

_WANDERED = 0.03


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """Measurements of one machine, in seconds at the session's typical speed.

    Parameters
    ----------
    profile
        Whole iterations.
    gemm_tokens, gemm_s
        The staircase: time of the model's largest product against tokens.
    facts
        bandwidth_bytes_per_s, matmul_flops_per_s, launch_s (a kernel), probe_s.
    drift
        Spread of the probe over the session: its 95 % minus its 5 % point, over the median.
    """

    profile: Profile
    gemm_tokens: Float[np.ndarray, "size"]
    gemm_s: Float[np.ndarray, "size"]
    facts: dict[str, float]
    drift: float


def read_session(path: str | Path) -> Session:
    """Return the session whose journal is at `path` (`<out>.points.jsonl`); a torn last line is passed over."""
    where = Path(path)
    try:
        raw = where.read_bytes()
    except FileNotFoundError:
        raise no_such_file(where, "the journal of a measurement") from None
    except OSError as problem:
        raise InputError(f"{where}: cannot be read ({problem.strerror})") from None
    try:
        values = [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
    except ValueError:
        raise InputError(f"{where}: a line is not valid JSON") from None
    if not values or not isinstance(values[0], dict) or values[0].get("kind") != "tileq measurement session":
        raise InputError(f"{where} is no measurement session; expected the .points.jsonl file that measure() wrote")
    return build_session(values[0], values[1:], where.name)


def build_session(header: dict[str, Any], records: list[dict[str, Any]], source: str) -> Session:
    """Return the session of a header and its records."""
    points = [record for record in records if record["what"] == "batch"]
    if not points:
        raise InputError(
            f"{source}: no batch was measured within the budget; give a larger budget_s or a smaller model"
        )
    probes = np.array([record["probe_s"] for record in records])
    probe_s = float(np.median(probes))
    drift = float((np.quantile(probes, 0.95) - np.quantile(probes, 0.05)) / probe_s)
    gemm = sorted((record["tokens"], record["ratio"] * probe_s) for record in records if record["what"] == "gemm")
    facts = {record["name"]: record["value"] for record in records if record["what"] == "fact"}
    return Session(
        _profile(header, points, probe_s, drift, facts, source),
        np.array([float(n) for n, _ in gemm]),
        np.array([s for _, s in gemm]),
        {**facts, "probe_s": probe_s},
        drift,
    )


def _threads_note(threads: int, cuda: bool) -> str:
    if cuda:
        return "device time between CUDA events"
    if threads == 1:
        return "one torch thread (threads= changes it), timed by its CPU time: other processes' share is not in it"
    return f"{threads} torch threads, timed by the wall clock"


def whole_model_s(record: dict[str, Any], probe_s: float, layers: int, measured: int) -> float:
    """Return a record's seconds at the typical speed, the blocks' share scaled from those measured to the model's."""
    share = record["inner_share"]
    return float(record["ratio"] * probe_s * (1 - share + share * layers / measured))


def _profile(
    header: dict[str, Any],
    points: list[dict[str, Any]],
    probe_s: float,
    drift: float,
    facts: dict[str, float],
    source: str,
) -> Profile:
    batches = [Batch(p["chunk"], p["history"], p["decodes"], p["context"]) for p in points]
    layers, measured = int(header["model_layers"]), int(header["layers"])
    widths = [p["halfwidth"] for p in points]
    notes = [
        f"measured through a stack of {measured} transformer blocks with random weights",
        _threads_note(int(header["threads"]), "cuda" in header["libraries"]),
        f"medians known to {100 * float(np.median(widths)):.1f} % in the median point",
        *(f"{name} {value:.4g}" for name, value in sorted(facts.items())),
    ]
    if measured != layers:
        notes.append(f"time of the blocks scaled from {measured} to the model's {layers} layers")
    if drift > _WANDERED:
        notes.append(
            f"the machine's speed wandered by {100 * drift:.1f} % (fixed probe); times are rescaled to its median"
        )
    return Profile.of(
        tokens=[b.tokens for b in batches],
        pairs=[b.pairs for b in batches],
        kv_tokens=[b.kv_tokens for b in batches],
        sequences=[b.sequences for b in batches],
        seconds=[whole_model_s(p, probe_s, layers, measured) for p in points],
        repeats=[p["repeats"] for p in points],
        prefill_tokens=[b.chunk_tokens for b in batches],
        conditions=Conditions(
            device=str(header["device"]),
            model=str(header["model"]),
            dtype=str(header["dtype"]),
            libraries=header["libraries"],
            clocks=header["clocks"],
            source=source,
            notes=tuple(notes),
        ),
    )
