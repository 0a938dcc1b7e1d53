"""Measuring this machine: iteration times of a model's shape through torch, within a budget of time.

>>> from tileq_profiling.measure import SMALL_MODEL
>>> SMALL_MODEL.layers
4
"""

from tileq_profiling.measure.measuring import SMALL_MODEL, measure
from tileq_profiling.measure.session import Session, read_session

__all__ = ["SMALL_MODEL", "Session", "measure", "read_session"]
