"""How far measurements lie from datasheet rooflines (`data/error_bands.toml`).

`tools/error_bands` recomputes the table from measured kernels and forward passes. A ratio is measured time / modelled
time of a whole iteration; a band lies between its 5 % and 95 % quantiles, every source and every regime of it weighing
the same. GPUs without measurements get the pooled band, and it says so.
"""

from __future__ import annotations

__all__ = ["Efficiency", "efficiency", "error_band", "variant_name"]

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Median of measured / datasheet time of each part of an iteration (dimensionless, usually above 1).

    Parameters
    ----------
    floor, compute
        Linear layers that read weights, and that compute.
    decode_attention, prefill_attention
        Reading the KV cache; computing query-key pairs.
    basis
        On which measurements the figures rest.
    """

    floor: float
    compute: float
    decode_attention: float
    prefill_attention: float
    basis: str

    def apply(self, t: IterationTime) -> IterationTime:
        """Return `t` with w times floor; a, beta and s times compute; k and e times their attention factors."""
        return t.with_(
            weight_floor_s=self.floor * t.weight_floor_s,
            tile_s=self.compute * t.tile_s,
            token_s=self.compute * t.token_s,
            sequence_s=self.compute * t.sequence_s,
            kv_token_s=self.decode_attention * t.kv_token_s,
            pair_s=self.prefill_attention * t.pair_s,
        )


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("tileq_theory") / "data" / "error_bands.toml").read_text(encoding="utf-8"))


def variant_name(*, affine: bool, corrected: bool) -> str:
    """Return the key of a roofline variant in the table: tiled or affine, as the datasheet says or corrected."""
    return ("affine" if affine else "tiled") + ("_corrected" if corrected else "")


@cache
def error_band(gpu_name: str, tp: int, *, affine: bool, corrected: bool) -> ErrorBand:
    """Return the band of measured / modelled iteration time for a roofline of that GPU.

    One GPU and several (tp > 1) have bands of their own: all-reduces, and other engines were measured.

    Examples
    --------
    >>> band = error_band("h100-sxm", 1, affine=False, corrected=False)
    >>> band.low < band.high and band.coverage == 0.9
    True
    """
    group = "single" if tp == 1 else "parallel"
    rows = _table()["bands"][group]
    row = rows.get(gpu_name)
    basis = ""
    if row is None:
        row = rows["pooled"]
        basis = f"none measured for {gpu_name}, so pooled over {', '.join(n for n in rows if n != 'pooled')}; "
    low, high = row[variant_name(affine=affine, corrected=corrected)]
    return ErrorBand(low, high, _table()["coverage"], basis + row["basis"])


@cache
def efficiency(gpu_name: str) -> Efficiency:
    """Return the factors that bring a datasheet roofline of that GPU to the middle of what was measured."""
    rows = _table()["efficiency"]
    row = rows.get(gpu_name)
    if row is None:
        basis = f"none measured for {gpu_name}, so pooled: {rows['pooled']['basis']}"
        return Efficiency(**{**rows["pooled"], "basis": basis})
    return Efficiency(**row)
