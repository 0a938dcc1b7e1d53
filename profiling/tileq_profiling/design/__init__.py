"""Which measurements to take next."""

from tileq_profiling.design.candidates import Batch, batches
from tileq_profiling.design.next_points import DesignPoint, next_measurements, tile_measurements

__all__ = ["Batch", "DesignPoint", "batches", "next_measurements", "tile_measurements"]
