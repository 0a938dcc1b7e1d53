"""`tileq.region`: the rates of several request classes beyond which no policy is stable."""

from __future__ import annotations

__all__ = ["Region", "region"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.plain import plain
from tileq.planning import check_question
from tileq.setting import Setting, Times, make_setting
from tileq.traffic import Traffic, make_traffic
from tileq_theory.capacity import Limits, StabilityRegion, stability_region
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq.plots.region import RegionPicture
    from tileq_theory.hardware import Gpu, Model
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Region:
    """The answer of `region`.

    Parameters
    ----------
    setting, traffic
        What was asked about.
    theory
        Facets and vertices, membership, distance.
    convention
        Token convention of the question.
    at
        Rates asked about, one a class, requests per second; None when none were.
    warnings
        What to know before relying on the numbers.
    """

    setting: Setting
    traffic: Traffic
    theory: StabilityRegion
    convention: TokenConvention
    at: tuple[float, ...] | None
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        names = ", ".join(self.theory.names)
        where = f"{self.setting.model.name} on {self.setting.gpu.name}"
        return f"<Region of {names} for {where}: {len(self.theory.facets)} facets, {len(self.theory.vertices)} corners>"

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq region --json` prints."""
        from tileq import __version__

        theory, band = self.theory, self.theory.time.error_band
        document = {
            "schema_version": SCHEMA_VERSION,
            "classes": [
                {"name": c.name, "lengths": c.lengths.describe(), "demand": demand}
                for c, demand in zip(self.traffic.workload.classes, theory.demands, strict=True)
            ],
            "facets": [{"prices": facet.price_s, "binding": facet.binding} for facet in theory.facets],
            "vertices": theory.vertices,
            "complete": theory.complete,
            "at": self._at(),
            "error_band": {
                "low": 1 / band.high,
                "high": 1 / band.low,
                "time_ratio": [band.low, band.high],
                "coverage": band.coverage,
                "basis": band.basis,
            },
            "provenance": {
                "iteration_time": self.setting.time.provenance,
                "gpu": self.setting.gpu.provenance,
                "model": self.setting.model.provenance,
                "workload": self.traffic.source,
                "tileq": __version__,
            },
            "warnings": list(self.warnings),
            "convention": self.convention,
            "limits": theory.limits.to_dict(),
            **self.setting.to_dict(),
            "iteration_time": theory.time.to_dict(),
        }
        cleaned: dict[str, Any] = plain(document)
        return cleaned

    def _at(self) -> dict[str, Any] | None:
        """Return what holds at the rates asked about."""
        if self.at is None:
            return None
        headroom = self.theory.headroom(self.at)
        return {
            "rates_per_s": list(self.at),
            "inside": self.theory.contains(self.at),
            "utilisation": self.theory.load(self.at),
            "headroom": headroom if math.isfinite(headroom) else None,
            "distance_per_s": self.theory.distance(self.at),
        }

    def figure(self) -> Any:
        """Return a matplotlib figure of the region of two or three classes."""
        from tileq.plots.region import draw_region

        return draw_region(self.picture())

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the region of two or three classes and write it to `path` (.png, .svg or .pdf)."""
        from tileq.plots.region import plot_region

        plot_region(self.picture(), Path(path))

    def picture(self) -> RegionPicture:
        """Return what the figure shows, ready for `tileq.plots.region.draw_region`."""
        from tileq.plots.region import RegionPicture, Side

        names = [_short(c.name) for c in self.traffic.workload.classes]
        points = (
            {}
            if self.at is None
            else {f"asked for: {'inside' if self.theory.contains(self.at) else 'outside'}": self.at}
        )
        where = f"{self.setting.tp} x {self.setting.gpu.name}" if self.setting.tp > 1 else self.setting.gpu.name
        return RegionPicture(
            classes=names,
            vertices=self.theory.vertices,
            sides=[Side(facet.price_s.tolist(), facet.binding) for facet in self.theory.facets],
            points=points,
            title=f"Stable rates of {self.setting.model.name} on {where}",
        )


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def region(
    classes: Sequence[str | RequestClass] | None = None,
    *,
    gpu: str | PathLike[str] | Gpu = "h100-sxm",
    model: str | PathLike[str] | Model = "llama-3.1-8b",
    tp: int = 1,
    nodes: int = 1,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    memory_utilisation: float = 0.9,
    times: Times = "corrected",
    calibration: str | PathLike[str] | IterationTime | None = None,
    workload: str | Workload | None = None,
    at: Sequence[float] | None = None,
    convention: TokenConvention = "engine",
    tbt: float | None = None,
    max_num_seqs: int | None = None,
    max_tokens: int = 8192,
) -> Region:
    """Return the stability region of request classes that share a model on a GPU.

    Parameters
    ----------
    classes
        "P:O" (lengths in tokens; "name=P:O"), or `RequestClass`, at least one. None: those of `workload`.
    workload
        A `Workload` whose classes are meant.
    at
        Rates to judge, one a class, requests per second: inside or not, by how much.
    gpu, model, tp, nodes, dtype, kv_dtype, memory_utilisation, times, calibration
        As in `plan`.
    convention, tbt, max_num_seqs, max_tokens
        As in `plan`.

    Raises
    ------
    InputError
        Whatever cannot be used, in one line.

    Examples
    --------
    >>> answer = region(["1024:128", "4096:32"], at=[10, 1])
    >>> answer.to_dict()["at"]["inside"]
    True
    """
    check_question(convention=convention, tbt=tbt, max_tokens=max_tokens)
    if not classes and workload is None:
        raise InputError("no classes given; expected at least one, as in --class 1024:128 --class 4096:32")
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
    traffic = make_traffic(workload=workload, classes=classes)
    limits = Limits(
        max_batch_tokens=max_tokens,
        max_num_seqs=max_num_seqs,
        kv_tokens=setting.kv_tokens,
        tbt_s=tbt,
        nodes=nodes,
    )
    # the least KV that any chunking holds: the region bounds every policy
    demands = traffic.workload.demands(chunk_tokens=max_tokens, convention=convention, counting="least")
    names = [c.name for c in traffic.workload.classes]
    theory = stability_region(setting.time, demands, limits, names=names)
    rates = None if at is None else tuple(float(rate) for rate in at)
    if rates is not None:
        theory.load(rates)  # a wrong number of rates is bad input, to be said now
    return Region(setting, traffic, theory, convention, rates, (*setting.warnings, *traffic.warnings))
