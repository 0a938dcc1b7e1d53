"""What a fit says of itself: the tile, the errors by regime, the errors on regions left out."""

from __future__ import annotations

__all__ = ["Fitted", "RegimeError", "RegionError", "TileVerdict"]

from dataclasses import asdict, dataclass
from typing import Literal

Fitted = Literal["iteration", "layer operators", "latencies"]


@dataclass(frozen=True, slots=True)
class TileVerdict:
    """What the measurements say about the tile.

    Parameters
    ----------
    answer
        "tile": a staircase predicts held-out batches better; "none": it does not, so the model is affine; "undecided":
        too few batch sizes to hold any out.
    tile_tokens
        b for "tile"; None where the model is affine.
    confidence
        Of the answer, in [0, 1]: 1 - p of the held-out comparison for "tile", p for "none", 0 for "undecided".
    tile_confidence
        Share of bootstrap resamples in which this tile was the best of all tried.
    improvement
        1 - held-out loss with the tile / held-out loss of the affine model.
    rivals
        Other tiles with the share of resamples in which they were best, best first.
    reason
        One sentence.
    """

    answer: Literal["tile", "none", "undecided"]
    tile_tokens: int | None
    confidence: float
    tile_confidence: float = 0.0
    improvement: float = 0.0
    rivals: tuple[tuple[int, float], ...] = ()
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as plain data."""
        return {
            "answer": self.answer,
            "tile_tokens": self.tile_tokens,
            "confidence": self.confidence,
            "tile_confidence": self.tile_confidence,
            "improvement": self.improvement,
            "rivals": [{"tile_tokens": b, "share": share} for b, share in self.rivals],
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class RegimeError:
    """Relative errors (predicted/measured - 1) of the rows of one regime.

    Parameters
    ----------
    regime
        "all", a phase or a part.
    points
        Rows.
    median_abs, p90_abs
        Median and 90 % quantile of the absolute relative error.
    bias
        Median relative error, above 0 where the model is too slow.
    inside
        Share of the rows inside the error band.
    """

    regime: str
    points: int
    median_abs: float
    p90_abs: float
    bias: float
    inside: float

    def to_dict(self) -> dict[str, object]:
        """Return the errors as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RegionError:
    """Error on a region that the fit did not see.

    Parameters
    ----------
    region
        What was left out.
    points
        Its rows.
    median_abs, bias
        Median absolute relative error there, and the median relative error.
    """

    region: str
    points: int
    median_abs: float
    bias: float

    def to_dict(self) -> dict[str, object]:
        """Return the errors as plain data."""
        return asdict(self)
