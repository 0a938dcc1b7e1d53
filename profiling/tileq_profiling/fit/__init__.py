"""Fitting the iteration-time family to a profile and judging the fit on what it did not see."""

from tileq_profiling.fit.chunk_times import ChunkTimes, recover_chunk_times
from tileq_profiling.fit.fit import fit
from tileq_profiling.fit.regions import RegionError
from tileq_profiling.fit.residuals import RegimeError
from tileq_profiling.fit.staircase import Staircase, find_staircase
from tileq_profiling.fit.tile_choice import TileVerdict

__all__ = [
    "ChunkTimes",
    "RegimeError",
    "RegionError",
    "Staircase",
    "TileVerdict",
    "find_staircase",
    "fit",
    "recover_chunk_times",
]
