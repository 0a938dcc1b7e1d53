"""Under which conditions iteration times were measured."""

from __future__ import annotations

__all__ = ["Conditions"]

from collections.abc import Mapping
from dataclasses import dataclass, field

from tileq_theory.errors import positive_int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a reader must know to compare the measurement with another.

    Parameters
    ----------
    device
        Name of the device, a catalogue slug where there is one ("a100-sxm-80gb"); "" where not known.
    model
        Name of the model, a catalogue slug where there is one; "" where not known.
    dtype, kv_dtype
        Format of weights and arithmetic, and of the KV cache (None: 16 bits).
    tp
        Tensor-parallel degree.
    libraries
        Name -> version of the software that ran ("vllm" -> "0.19.0").
    clocks
        Name -> MHz of the clocks during the measurement, where they were read.
    source
        File, publication or run that the times came from.
    notes
        Further facts, one short sentence each.

    Examples
    --------
    >>> Conditions(device="rtx-4090", model="llama-3.1-8b", libraries={"vllm": "0.19.0"}).tp
    1
    """

    device: str = ""
    model: str = ""
    dtype: str = "bf16"
    kv_dtype: str | None = None
    tp: int = 1
    libraries: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tp", positive_int("tp", self.tp))
        object.__setattr__(self, "libraries", dict(self.libraries))
        object.__setattr__(self, "clocks", {k: float(v) for k, v in self.clocks.items()})
        object.__setattr__(self, "notes", tuple(self.notes))

    def to_dict(self) -> dict[str, object]:
        """Return the conditions as plain data."""
        return {
            "device": self.device,
            "model": self.model,
            "dtype": self.dtype,
            "kv_dtype": self.kv_dtype,
            "tp": self.tp,
            "libraries": dict(self.libraries),
            "clocks": dict(self.clocks),
            "source": self.source,
            "notes": list(self.notes),
        }
