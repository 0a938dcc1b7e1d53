"""`tileq calibrate`: read what was measured, fit it, print how far the fit may be trusted."""

from __future__ import annotations

__all__ = ["EXAMPLE", "calibrate"]

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tileq.cli import options as o
from tileq.cli.show import show

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq calibrate engine.log --gpu a100-sxm-80gb --out mine.json"

File = Annotated[Path, Parameter(help="Log, table or folder (catalog profiles).")]
Format = Annotated[str | None, o.option("Its format; told by its content.", o.MACHINE)]
Where = Annotated[list[str] | None, o.option("KEY=VALUE: part of the file; repeatable.", o.MACHINE)]
Shape = Annotated[str | None, o.option("What was measured; name or config.json.", o.MACHINE)]
Device = Annotated[str | None, o.option("Where it was measured; name or file.", o.MACHINE)]
Launch = Annotated[float | None, o.option("Host seconds to add to kernels.", o.MACHINE, converter=o.number)]
MaxTokens = Annotated[int | None, o.option("Largest batch; the largest measured.", o.LIMITS, converter=o.whole)]
Budget = Annotated[int | None, o.option("Its iteration's tokens; as it states.", o.ENGINE, converter=o.whole)]
Seats = Annotated[int | None, o.option("Its sequences; as it states.", o.ENGINE, converter=o.whole)]
Policy = Annotated[str | None, o.option("Its scheduler; vLLM's.", o.ENGINE)]
Rate = Annotated[float | None, o.option("Requests/s, if its file lacks arrivals.", o.ENGINE, converter=o.number)]
Concurrency = Annotated[int | None, o.option("Clients, if its file lacks arrivals.", o.ENGINE, converter=o.whole)]
Characters = Annotated[float | None, o.option("Characters a token (BurstGPT).", o.MACHINE, converter=o.number)]
KvTokens = Annotated[int | None, o.option("KV capacity; its own, or the GPU's.", o.ENGINE, converter=o.whole)]
Replay = Annotated[Path | None, o.option("Measured run to compare with.", o.ENGINE)]
Out = Annotated[Path | None, o.option("Calibration file to write (.json).", o.OUTPUT)]
Report = Annotated[Path | None, o.option("Report with plots to write (.html).", o.OUTPUT)]


def calibrate(
    file: File,
    /,
    *,
    format: Format = None,
    where: Where = None,
    model: Shape = None,
    gpu: Device = None,
    tp: o.Tp = 1,
    launch: Launch = None,
    chars_per_token: Characters = None,
    replay: Replay = None,
    policy: Policy = None,
    token_budget: Budget = None,
    max_num_seqs: Seats = None,
    kv_tokens: KvTokens = None,
    rate: Rate = None,
    concurrency: Concurrency = None,
    trace: o.Trace = None,
    workload: o.Workload = None,
    classes: o.Classes = None,
    max_tokens: MaxTokens = None,
    out: Out = None,
    report: Report = None,
    json: o.Json = False,
) -> None:
    """Fit an iteration time to step times or latencies: tile, errors, lambda*."""
    from tileq import calibrating

    answer = calibrating.calibrate(
        file,
        format=format,
        where=_pairs(where),
        model=model,
        gpu=gpu,
        tp=tp,
        launch=launch,
        chars_per_token=chars_per_token,
        replay=replay,
        policy=policy,
        token_budget=token_budget,
        max_num_seqs=max_num_seqs,
        kv_tokens=kv_tokens,
        rate=rate,
        concurrency=concurrency,
        trace=trace,
        workload=workload,
        classes=classes,
        max_tokens=max_tokens,
        out=out,
        report=report,
    )
    if json:
        show(answer.to_dict(), _nothing, as_json=True)
        return
    written = "".join(
        f"{name} written to {path}\n" for name, path in (("Calibration", out), ("Report", report)) if path
    )
    of = f"lambda* is of the {answer.traffic.label}, batches of up to {answer.limits.max_batch_tokens} tokens\n"
    sys.stdout.write(answer.text() + "\n" + (of if answer.rate is not None else "") + written)


def _nothing(console: Console) -> None:
    """Print nothing: the document is all."""


def _pairs(given: Sequence[str] | None) -> dict[str, str] | None:
    from tileq_theory.errors import InputError

    if not given:
        return None
    pairs: dict[str, str] = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key or not value or key in pairs:
            raise InputError(f"--where is {item!r}; expected KEY=VALUE, each key once, as engine=0")
        pairs[key] = value
    return pairs
