"""What a question is asked about: the GPU, the model, how they are run, and what that makes of time and memory."""

from __future__ import annotations

__all__ = ["Setting", "Times", "make_setting"]

import contextlib
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_theory.hardware import Gpu, Model

# an engine reserves memory for its largest batch; before the plan is known, these stand for it (vLLM's own defaults)
_RESERVE_TOKENS = 2048
_RESERVE_SEQUENCES = 256

Times = Literal["corrected", "datasheet"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A model on a GPU.

    Parameters
    ----------
    gpu, model
        What runs on what.
    time
        Iteration time of one replica: a datasheet roofline, or measured.
    kv_tokens
        KV tokens that fit beside the weights of one replica.
    reserve_bytes
        Bytes of each GPU kept for activations and the runtime.
    tp, dtype, kv_dtype, memory_utilisation
        Tensor-parallel GPUs, number formats, share of the memory that the engine may use.
    warnings
        What a reader of the numbers should know.
    own_times
        True where the caller brought the times, in a file or as an object, and the catalogue did not.
    """

    gpu: Gpu
    model: Model
    time: IterationTime
    kv_tokens: int
    reserve_bytes: float
    tp: int
    dtype: str
    kv_dtype: str | None
    memory_utilisation: float
    warnings: tuple[str, ...] = ()
    own_times: bool = False

    def for_batch(self, token_budget: int, max_num_seqs: int) -> Setting:
        """Return the setting with the memory reserved for batches of that size instead."""
        kv_tokens, reserve = _memory(
            self.gpu,
            self.model,
            self.tp,
            self.dtype,
            self.kv_dtype,
            self.memory_utilisation,
            token_budget,
            max_num_seqs,
        )
        return replace(self, kv_tokens=kv_tokens, reserve_bytes=reserve)

    @property
    def static_share(self) -> float:
        """Share of a GPU's memory that weights and KV cache take."""
        return max(0.0, self.memory_utilisation - self.reserve_bytes / self.gpu.memory_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain data."""
        return {
            "gpu": self.gpu.to_dict(),
            "model": self.model.to_dict(),
            "tp": self.tp,
            "dtype": self.dtype,
            "kv_dtype": self.kv_dtype,
            "memory_utilisation": self.memory_utilisation,
            "kv_tokens": self.kv_tokens,
            "reserve_bytes": self.reserve_bytes,
        }


def make_setting(
    gpu: str | PathLike[str] | Gpu,
    model: str | PathLike[str] | Model,
    *,
    tp: int = 1,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    memory_utilisation: float = 0.9,
    times: Times = "corrected",
    calibration: str | PathLike[str] | IterationTime | None = None,
) -> Setting:
    """Return the setting that names, files or objects describe.

    Without a calibration the times are the datasheet's roofline: "corrected" by what was measured on that GPU (pooled
    over the GPUs that were, where it was not), or as the "datasheet" promises, which is optimistic.

    A calibration is the name of a ready-made one, a file, or an `IterationTime`; a file of that name comes first.

    Raises
    ------
    InputError
        Unknown names, unreadable files, arithmetic the GPU lacks, a model that does not fit (how much is missing).

    Examples
    --------
    >>> make_setting("h100-sxm", "llama-3.1-8b").model.layers
    32
    """
    from tileq_theory.hardware import Gpu, Model, load_gpu, load_model, roofline

    device = gpu if isinstance(gpu, Gpu) else load_gpu(gpu)
    network = model if isinstance(model, Model) else load_model(model)
    ranks = positive_int("tp", tp)
    share = positive("memory_utilisation", memory_utilisation)
    if times not in ("corrected", "datasheet"):
        raise InputError(f"times are {times!r}; expected 'corrected' or 'datasheet'")
    if share > 1:
        raise InputError(f"memory_utilisation is {memory_utilisation!r}; expected a share above 0 and at most 1")
    warnings: tuple[str, ...] = ()
    own = False
    if calibration is None:
        corrected = times == "corrected"
        time = roofline(device, network, dtype=dtype, kv_dtype=kv_dtype, tp=ranks, corrected=corrected)
    else:
        time, warnings, own = _measured(calibration, (device.name, network.name, ranks, dtype))
    kv_tokens, reserve = _memory(device, network, ranks, dtype, kv_dtype, share, _RESERVE_TOKENS, _RESERVE_SEQUENCES)
    return Setting(device, network, time, kv_tokens, reserve, ranks, dtype, kv_dtype, share, warnings, own)


def _measured(
    calibration: str | PathLike[str] | IterationTime, asked: tuple[str, str, int, str]
) -> tuple[IterationTime, tuple[str, ...], bool]:
    """Return the measured time, a warning where it is of another machine than asked, and whether it is the caller's."""
    from tileq.calibration_file import measured_on, named_or_none, read_iteration_time

    if isinstance(calibration, IterationTime):
        return calibration, (), True
    named = named_or_none(calibration)
    if named is None:
        time, label, has = read_iteration_time(calibration), Path(calibration).name, measured_on(calibration)
    else:
        time, label = named.time, named.name
        has = {"gpu": named.gpu, "model": named.model, "tp": named.tp, "dtype": named.dtype}
    given = dict(zip(("gpu", "model", "tp", "dtype"), asked, strict=True))
    other = [
        f"{what} {value} (asked: {given[what]})" for what, value in has.items() if _differ(what, value, given[what])
    ]
    told = f"calibration {label} was measured with {', '.join(other)}: its times are not those of this question"
    return time, (told,) if other else (), named is None


def _differ(what: str, measured: object, asked: object) -> bool:
    """Return whether two conditions are not the same: a GPU by any of its names; 16-bit formats take the same time."""
    if what == "dtype" and {measured, asked} <= {"fp16", "bf16"}:
        return False
    if what == "gpu":
        from tileq_theory.hardware import load_gpu

        with contextlib.suppress(InputError):
            return load_gpu(str(measured)).name != asked
    return measured != asked


def _memory(
    gpu: Gpu,
    model: Model,
    tp: int,
    dtype: str,
    kv_dtype: str | None,
    share: float,
    token_budget: int,
    max_num_seqs: int,
) -> tuple[int, float]:
    from tileq_theory.hardware.kv_capacity import kv_capacity_tokens, reserve_bytes

    reserve = reserve_bytes(model, token_budget=token_budget, max_num_seqs=max_num_seqs, tp=tp)
    tokens = kv_capacity_tokens(
        gpu,
        model,
        dtype,
        kv_dtype=kv_dtype,
        tp=tp,
        utilisation=share,
        token_budget=token_budget,
        max_num_seqs=max_num_seqs,
    )
    return tokens, reserve
