"""Tileq: from a GPU, a model and a trace to the throughput-optimal tile, and from the tile to the schedule."""

__version__ = "0.1.0"
