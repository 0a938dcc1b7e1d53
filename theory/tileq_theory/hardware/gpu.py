"""A GPU as its datasheet describes it."""

from __future__ import annotations

__all__ = ["COMPUTE_FORMATS", "Gpu"]

from collections.abc import Mapping
from dataclasses import dataclass, field

from tileq_theory.errors import InputError, positive
from tileq_theory.hardware.dtypes import weight_format
from tileq_theory.provenance import Provenance

COMPUTE_FORMATS = ("bf16", "fp16", "fp8", "int8")
_OPTIONAL = ("l2_bytes", "link_bytes_per_s", "tdp_w", "measured_bf16_flops")


@dataclass(frozen=True, slots=True)
class Gpu:
    """Datasheet facts of one GPU.

    Parameters
    ----------
    name
        Slug, such as `h100-sxm`.
    arch
        Architecture family.
    peak_flops
        Dense peak per arithmetic format (bf16, fp16, fp8, int8), FLOP/s (OP/s for int8), with fp32 accumulation where a
        GPU runs it at another rate than fp16 accumulation; a format the GPU lacks is absent.
    memory_bytes
        Memory that software sees (what the driver reports), bytes; not the datasheet's rounded GB.
    bandwidth_bytes_per_s
        Peak memory bandwidth, bytes/s (decimal: 1 GB/s = 1e9).
    l2_bytes, link_bytes_per_s, tdp_w, measured_bf16_flops
        L2 cache; GPU-to-GPU bandwidth in one direction (NVLink, Infinity Fabric, else PCIe); board power; best bf16
        GeMM rate anybody measured. None where not known.
    sources
        Fact name -> where it came from.
    unverified
        Names of the facts that no second source confirms.
    provenance
        Where the whole row came from.

    Examples
    --------
    >>> gpu = Gpu("mine", "Test", {"bf16": 100e12}, memory_bytes=24e9, bandwidth_bytes_per_s=1e12)
    >>> gpu.peak("bf16")
    100000000000000.0
    """

    name: str
    arch: str
    peak_flops: Mapping[str, float]
    memory_bytes: float
    bandwidth_bytes_per_s: float
    l2_bytes: float | None = None
    link_bytes_per_s: float | None = None
    tdp_w: float | None = None
    measured_bf16_flops: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    unverified: tuple[str, ...] = field(default=(), compare=False)
    provenance: Provenance = field(default=Provenance("datasheet", "given by the caller"), compare=False)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.peak_flops) - set(COMPUTE_FORMATS))
        if unknown or not self.peak_flops:
            raise InputError(
                f"GPU {self.name}: peak_flops has {unknown or 'no entry'}; expected {' or '.join(COMPUTE_FORMATS)}"
            )
        peaks = {k: positive(f"GPU {self.name}: peak_flops.{k}", v) for k, v in self.peak_flops.items()}
        object.__setattr__(self, "peak_flops", peaks)  # plain dicts: a read-only view cannot be pickled or copied
        object.__setattr__(self, "sources", dict(self.sources))
        for name in ("memory_bytes", "bandwidth_bytes_per_s"):
            object.__setattr__(self, name, positive(f"GPU {self.name}: {name}", getattr(self, name)))
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, positive(f"GPU {self.name}: {name}", value))

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.bandwidth_bytes_per_s, *sorted(self.peak_flops.items())))

    def peak(self, dtype: str) -> float:
        """Return the dense peak of the arithmetic that weights of `dtype` use, FLOP/s.

        Raises
        ------
        InputError
            When the GPU lacks that arithmetic; the message names formats that it has.
        """
        fmt = weight_format(dtype)
        if fmt.compute == "16bit":
            return self.peak_16bit()
        if fmt.compute not in self.peak_flops:
            has = [k for k in COMPUTE_FORMATS if k in self.peak_flops]
            hint = " or dtype w8a16 (8-bit weights, 16-bit arithmetic)" if fmt.bytes_per_weight < 2 else ""
            raise InputError(f"GPU {self.name} has no {fmt.name} arithmetic; use {' or '.join(has)}{hint}")
        return self.peak_flops[fmt.compute]

    def peak_16bit(self) -> float:
        """Return the dense peak of 16-bit arithmetic: bf16, or fp16 where bf16 is absent, FLOP/s."""
        for name in ("bf16", "fp16"):
            if name in self.peak_flops:
                return self.peak_flops[name]
        raise InputError(f"GPU {self.name} has neither bf16 nor fp16 arithmetic; add one of them to its facts")

    def to_dict(self) -> dict[str, object]:
        """Return every fact as plain data."""
        return {
            "name": self.name,
            "arch": self.arch,
            "peak_flops": dict(self.peak_flops),
            "memory_bytes": self.memory_bytes,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            **{name: getattr(self, name) for name in _OPTIONAL},
            "unverified": list(self.unverified),
            "provenance": self.provenance.to_dict(),
        }
