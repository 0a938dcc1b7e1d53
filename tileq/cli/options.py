"""Options that several commands share: their names, one line of help each, and how their text becomes a value.

Nothing of the theory is imported here: `--help` needs none of it.
"""

from __future__ import annotations

__all__ = [
    "Calibration",
    "Check",
    "Classes",
    "ControlTbt",
    "Convention",
    "Conversations",
    "Dtype",
    "Engine",
    "Folder",
    "Gpu",
    "Json",
    "KeepPrefixes",
    "KvDtype",
    "KvTokens",
    "MaxNumSeqs",
    "MaxTokens",
    "MemoryUtilisation",
    "Model",
    "Nodes",
    "Paying",
    "Plot",
    "Policy",
    "Preemption",
    "PrefixCache",
    "Pressure",
    "Replications",
    "Requests",
    "Reservation",
    "Seed",
    "SwapGbPerS",
    "Tbt",
    "Tenants",
    "TimesOf",
    "TokenBudget",
    "TokenPrices",
    "Tp",
    "Trace",
    "Watermark",
    "Workload",
]

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

MACHINE = Group("Machine", sort_key=1)
TRAFFIC = Group("Traffic", sort_key=2)
LIMITS = Group("Limits", sort_key=3)
ENGINE = Group("Engine", sort_key=4)
RUNS = Group("Runs", sort_key=5)
OUTPUT = Group("Output", sort_key=6)


def number(_: type, tokens: Sequence[Token]) -> float:
    """Read one finite number; 'nan' and 'inf' are no values of any option."""
    text = tokens[0].value
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def whole(_: type, tokens: Sequence[Token]) -> int:
    """Read one whole number; 1.5 is an error, not 1."""
    value = number(float, tokens)
    if value != int(value):
        raise ValueError(f"{tokens[0].value!r} is not a whole number")
    return int(value)


def numbers(name: str, text: str) -> tuple[float, ...]:
    """Read finite numbers with commas between them."""
    from tileq_theory.errors import InputError

    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) for value in values):
        raise InputError(f"{name} is {text!r}; expected numbers with commas between them")
    return values


def option(help_: str, group: Group, **settings: Any) -> Parameter:
    """Return a parameter with its line of help, without a negative form."""
    return Parameter(help=help_, group=group, negative="", **settings)


Gpu = Annotated[str, option("Name or file.", MACHINE)]
Model = Annotated[str, option("Name or config.json.", MACHINE)]
Tp = Annotated[int, option("GPUs per copy of the model.", MACHINE, converter=whole)]
Nodes = Annotated[
    int, option("Equal replicas behind one balancer.", MACHINE, converter=whole, name=["--nodes", "--replicas"])
]
Dtype = Annotated[str, option("Weights: fp16, fp8, int8, w8a16, ...", MACHINE)]
KvDtype = Annotated[str | None, option("KV cache, if not 16 bits: fp8, int8.", MACHINE)]
TimesOf = Annotated[Literal["corrected", "datasheet"], option("Roofline.", MACHINE)]
Calibration = Annotated[str | None, option("Measured iteration time: name or file.", MACHINE)]
MemoryUtilisation = Annotated[float, option("Share of GPU memory used.", MACHINE, converter=number)]

Classes = Annotated[list[str] | None, option("P:O tokens, as 512:128@SHARE; repeatable.", TRAFFIC, name="--class")]
Trace = Annotated[str | None, option("Request trace (tileq catalog traces).", TRAFFIC)]
Workload = Annotated[str | None, option("Named mix (tileq catalog workloads), or conversations.", TRAFFIC)]
Conversations = Annotated[str | None, option("Sessions: turns=4:system=1000:user=100:...", TRAFFIC)]
PrefixCache = Annotated[str | None, option("infinite, kv, TOKENS or SHARE%.", TRAFFIC)]
Convention = Annotated[Literal["engine", "paper"], option("O - 1 decodes, or O.", TRAFFIC)]

Tbt = Annotated[float | None, option("Longest iteration allowed, seconds.", LIMITS, converter=number)]
MaxNumSeqs = Annotated[int | None, option("Most sequences in a batch.", LIMITS, converter=whole)]
MaxTokens = Annotated[int, option("Largest batch considered, tokens.", LIMITS, converter=whole)]

Policy = Annotated[str, option("Name, or name:setting=value:...", ENGINE)]
TokenBudget = Annotated[int | None, option("Tokens of an iteration; the plan's.", ENGINE, converter=whole)]
KvTokens = Annotated[int | None, option("KV capacity; the GPU's.", ENGINE, converter=whole)]
Preemption = Annotated[Literal["recompute", "swap", "none"], option("Without a free block.", ENGINE)]
SwapGbPerS = Annotated[float, option("Host link of a GPU, GB/s, for swap.", ENGINE, converter=number)]
Paying = Annotated[float | None, option("Share with TBT 0.1 s; others 0.5 s.", ENGINE, converter=number)]
KeepPrefixes = Annotated[bool, option("Keep prompts' KV for later prefixes.", ENGINE, show_default=False)]
Check = Annotated[bool, option("Check every invariant (slow).", ENGINE, show_default=False)]

Tenants = Annotated[list[str] | None, option("NAME=WEIGHT[:QUOTA][@SHARE]; repeatable.", ENGINE, name="--tenant")]
TokenPrices = Annotated[str, option("Service of a prompt and an output token.", ENGINE)]
Reservation = Annotated[
    Literal["policy", "optimistic", "prompt", "conservative"], option("Blocks taken at admission.", ENGINE)
]
Watermark = Annotated[float, option("Share of blocks an admission leaves free.", ENGINE, converter=number)]
Pressure = Annotated[str | None, option("hold, shrink, reject or reroute, as reject:waiting=64.", ENGINE)]
ControlTbt = Annotated[float | None, option("Budget held to this TBT, seconds.", ENGINE, converter=number)]

Requests = Annotated[int, option("Requests of a run.", RUNS, converter=whole)]
Replications = Annotated[int, option("Independent runs.", RUNS, converter=whole)]
Seed = Annotated[int, option("Seed of the random streams.", RUNS, converter=whole)]
Folder = Annotated[Path | None, option("Keep results; resume from them.", RUNS)]

Engine = Annotated[str, option("Write flags for: vllm, sglang, sarathi.", OUTPUT)]
Plot = Annotated[Path | None, option("Draw a picture: .png, .svg or .pdf.", OUTPUT)]
Json = Annotated[bool, option("One JSON document, nothing else.", OUTPUT, show_default=False)]
