"""Fitting the iteration-time family to a profile and judging the fit on what it did not see."""

from tileq_profiling.calibration.records import RegimeError, RegionError, TileVerdict
from tileq_profiling.fit.chunk_times import ChunkTimes, recover_chunk_times
from tileq_profiling.fit.fit import fit
from tileq_profiling.fit.staircase import Staircase, find_staircase

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
