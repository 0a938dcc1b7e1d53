"""The batch to measure: `design`'s, so that what it asks for can be measured as it is."""

from __future__ import annotations

__all__ = ["Batch"]

from tileq_profiling.design.candidates import Batch
