"""The iteration time of a question: coefficients, a calibration, or a model on a GPU; and its one class of requests."""

from __future__ import annotations

__all__ = ["DEFAULTS", "Machine", "Traffic", "machine", "one_class"]

from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

from tileq.setting import Setting, Times, make_setting
from tileq_theory.conventions import TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, near_matches
from tileq_theory.iteration_time import IterationTime
from tileq_theory.request_class import RequestClass, parse_class

DEFAULTS: dict[str, Any] = {"gpu": "h100-sxm", "model": "llama-3.1-8b", "tp": 1, "dtype": "bf16", "times": "corrected",
                            "memory_utilisation": 0.9}  # fmt: skip
_COEFFICIENTS = {f.name for f in fields(IterationTime)} - {"provenance", "error_band", "kv_counts_prefill"}


@dataclass(frozen=True, slots=True)
class Machine:
    """Iteration time and where it comes from."""

    time: IterationTime
    label: str
    setting: Setting | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what was asked about, as plain data."""
        where = {} if self.setting is None else self.setting.to_dict()
        return {**where, "iteration_time": self.time.to_dict()}

    def provenance(self) -> dict[str, Any]:
        """Return the sources of the times."""
        found: dict[str, Any] = {"iteration_time": self.time.provenance}
        if self.setting is not None:
            found |= {"gpu": self.setting.gpu.provenance, "model": self.setting.model.provenance}
        return found


@dataclass(frozen=True, slots=True)
class Traffic:
    """One class of requests."""

    requests: RequestClass
    demand: Demand
    prompt_tokens: float
    output_tokens: float


def machine(
    *,
    time: str | IterationTime | None = None,
    gpu: str | PathLike[str] = "h100-sxm",
    model: str | PathLike[str] = "llama-3.1-8b",
    tp: int = 1,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    memory_utilisation: float = 0.9,
    times: Times = "corrected",
    calibration: str | PathLike[str] | IterationTime | None = None,
) -> Machine:
    """Return the machine: `time` alone where it is given ("launch_s=0.008,token_s=5e-5"), else as `plan` has it.

    Raises
    ------
    InputError
        Coefficients that are unknown or no numbers, `time` beside `calibration`, or what `plan` refuses.
    """
    if time is not None:
        given = {"gpu": gpu, "model": model, "tp": tp, "dtype": dtype, "kv_dtype": kv_dtype, "times": times,
                 "memory_utilisation": memory_utilisation, "calibration": calibration}  # fmt: skip
        for name, value in given.items():
            if value is not DEFAULTS.get(name) and value != DEFAULTS.get(name):
                raise InputError(f"both time and {name} are given; expected one of them")
        made = time if isinstance(time, IterationTime) else _coefficients(time)
        return Machine(made, "the given coefficients", None, ())
    setting = make_setting(
        gpu,
        model,
        tp=tp,
        dtype=dtype,
        kv_dtype=kv_dtype,
        memory_utilisation=memory_utilisation,
        times=times,
        calibration=calibration,
    )
    return Machine(setting.time, f"{setting.model.name} on {setting.gpu.name}", setting, setting.warnings)


def _coefficients(text: str) -> IterationTime:
    given: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        name = name.strip()
        if not sign or name not in _COEFFICIENTS:
            hint = near_matches("coefficients", name, _COEFFICIENTS)
            raise InputError(f"time has {part.strip()!r}; expected coefficient=number; {hint}")
        if name in given:
            raise InputError(f"time has {name} twice")
        try:
            given[name] = float(value)
        except ValueError:
            raise InputError(f"time has {part.strip()!r}; expected a number after the sign") from None
    if "tile_tokens" in given:
        if given["tile_tokens"] != int(given["tile_tokens"]):
            raise InputError(f"tile_tokens is {given['tile_tokens']:g}; expected a whole number")
        given["tile_tokens"] = int(given["tile_tokens"])
    return IterationTime(**given)  # type: ignore[arg-type]


def one_class(text: str | RequestClass, convention: TokenConvention, chunk_tokens: int = 8192) -> Traffic:
    """Return one class of requests ("P:O"), with its demand and mean lengths."""
    if convention not in ("engine", "paper"):
        raise InputError(f"convention is {convention!r}; expected 'engine' or 'paper'")
    requests = text if isinstance(text, RequestClass) else parse_class(text)
    demand = requests.lengths.demand(chunk_tokens=chunk_tokens, convention=convention, counting="least")
    steps = demand.decode_tokens + (convention == "engine")
    return Traffic(requests, demand, demand.prefill_tokens, steps)
