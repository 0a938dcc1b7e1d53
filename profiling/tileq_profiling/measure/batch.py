"""The batch to measure: `design`'s, so that what it asks for can be measured as it is."""

from __future__ import annotations

__all__ = ["Batch"]

import tileq_profiling.fit  # noqa: F401 - before design, which needs the fit package whole
from tileq_profiling.design.candidates import Batch
