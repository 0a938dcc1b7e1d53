"""`tileq profile`: iteration times of a model's shape, measured on this machine."""

from __future__ import annotations

__all__ = ["Profiled", "profile"]

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from tileq_profiling.profile import Profile
    from tileq_theory.hardware import Model

_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Profiled:
    """What was measured and where it lies.

    Parameters
    ----------
    profile
        The measured iterations.
    file
        Where they were written; None: nowhere.
    """

    profile: Profile
    file: Path | None

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq profile --json` prints."""
        from tileq.plain import plain

        p = self.profile
        document: dict[str, Any] = plain(
            {
                "schema_version": 1,
                "file": self.file,
                "points": len(p),
                "phases": {name: int((p.phase == name).sum()) for name in sorted(set(p.phase.tolist()))},
                "most_tokens": float(p.tokens.max()),
                "shortest_s": float(p.seconds.min()),
                "longest_s": float(p.seconds.max()),
                "conditions": p.conditions.to_dict(),
            }
        )
        return document


def profile(
    *,
    device: str = "cpu",
    model: str | Model | None = None,
    budget: float = 120.0,
    out: str | PathLike[str] | None = None,
    dtype: str | None = None,
    threads: int = 1,
    progress: bool | None = None,
    **limits: Any,
) -> Profiled:
    """Measure this machine within a budget of seconds; needs the extra `tileq[torch]`.

    Parameters
    ----------
    device
        "cpu", "cuda" or "cuda:<number>".
    model
        A name, a config.json or a `Model`; None: a small Llama.
    budget
        Seconds of the whole measurement.
    out
        Where the profile goes (.csv or .parquet); an interrupted measurement goes on from what lies there.
    dtype, threads
        Arithmetic (fp32 on a CPU, bf16 on CUDA when None), and torch threads on a CPU.
    progress
        A bar on stderr; None: when it is a terminal.
    limits
        Further options of `tileq_profiling.measure.measure`.

    Raises
    ------
    InputError
        torch is not installed, no such device, a model that does not fit, a budget too small for a single point.
    """
    from tileq.calibrating import writable
    from tileq_profiling.measure import measure

    positive("budget", budget)
    where = None
    if out is not None:
        where = writable(out)
        if where.suffix not in _SUFFIXES:
            raise InputError(f"out is {str(out)!r}; expected a name that ends in .csv or .parquet")
    measured = measure(
        device, model, budget_s=budget, out=where, dtype=dtype, threads=threads, progress=progress, **limits
    )
    return Profiled(measured, where)
