"""`tileq calibrate` of a file that has latencies and no step times: an inverse fit through the simulator."""

from __future__ import annotations

__all__ = ["EngineOptions", "fit_file", "holds_latencies"]

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tileq_theory.errors import InputError, positive, positive_int

if TYPE_CHECKING:
    from tileq_profiling.inverse import InverseFit
    from tileq_profiling.steps import MeasuredRun
    from tileq_theory.hardware import Gpu, Model


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a caller knows of the engine behind the latencies; None: as the file states, else assumed."""

    policy: str | None = None
    token_budget: int | None = None
    max_num_seqs: int | None = None
    kv_tokens: int | None = None
    rate: float | None = None
    concurrency: int | None = None
    chars_per_token: float | None = None


def holds_latencies(file: Path, format: str | None) -> bool:  # noqa: A002
    """Return whether the place holds measured runs and neither step times nor operator times."""
    from tileq_profiling.steps import holds_runs_only

    return holds_runs_only(file, format)


def fit_file(
    file: Path,
    format: str | None,  # noqa: A002
    where: Mapping[str, str] | None,
    model: Model | None,
    gpu: Gpu | None,
    tp: int,
    engine: EngineOptions,
) -> InverseFit:
    """Return the fit to all runs of a file or folder (`where` {"run": "2"}: to one of them)."""
    from tileq.policy_text import parse_policy
    from tileq_profiling.inverse import fit_latencies
    from tileq_profiling.steps import read_runs

    runs = read_runs(file, format, run=_run_of(where), chars_per_token=engine.chars_per_token)
    device, shape = gpu or _gpu_of(runs[0]), model or _model_of(runs[0])
    return fit_latencies(
        runs,
        policy=None if engine.policy is None else parse_policy(engine.policy),
        token_budget=engine.token_budget,
        max_num_seqs=engine.max_num_seqs,
        kv_tokens=engine.kv_tokens,
        gpu=device,
        model=shape,
        tp=tp if tp > 1 else runs[0].conditions.tp,
        dtype=runs[0].conditions.dtype,
        rate=None if engine.rate is None else positive("rate", engine.rate),
        clients=None if engine.concurrency is None else positive_int("concurrency", engine.concurrency),
    )


def _run_of(where: Mapping[str, str] | None) -> int | None:
    if not where:
        return None
    if set(where) != {"run"} or not str(where["run"]).isdigit():
        told = ", ".join(f"{k}={v}" for k, v in where.items())
        raise InputError(f"where is {told}; of a file of measured runs expected run=NUMBER, from 1")
    return int(where["run"])


def _gpu_of(run: MeasuredRun) -> Gpu | None:
    from tileq_theory.hardware import gpu_names, load_gpu

    return load_gpu(run.conditions.device) if run.conditions.device in gpu_names() else None


def _model_of(run: MeasuredRun) -> Model | None:
    from tileq_theory.hardware import load_model, model_names

    return load_model(run.conditions.model) if run.conditions.model in model_names() else None
