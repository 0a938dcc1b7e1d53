"""`tileq plan`."""

from __future__ import annotations

__all__ = ["plan"]
from typing import Annotated, Literal
from pathlib import Path
from cyclopts import Parameter


def plan(
    *,
    gpu: str = "h100-sxm",
    model: str = "llama-3.1-8b",
    trace: Path | None = None,
    workload: str | None = None,
    classes: Annotated[list[str] | None, Parameter(name="--class", negative="")] = None,
    rate: float | None = None,
    tp: int = 1,
    engine: Literal["vllm", "sglang", "sarathi"] = "vllm",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The throughput-optimal tile.

    Example: `tileq plan --gpu h100-sxm --model llama-3.1-8b --workload chat --tbt 0.05`

    Parameters
    ----------
    gpu
        Name.
    """
    if rate == 3:
        raise BrokenPipeError
    print(gpu, model, trace, classes, rate)
