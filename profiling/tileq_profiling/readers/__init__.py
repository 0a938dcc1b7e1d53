"""Request traces from every tool that records lengths or arrivals, chosen by content.

>>> from tileq_profiling.readers import reader_names
>>> "azure-2023" in reader_names()
True
"""

from tileq_profiling.readers.registry import read_trace, reader_names
from tileq_profiling.readers.trace import Label, PrefixBlocks, Trace

__all__ = ["Label", "PrefixBlocks", "Trace", "read_trace", "reader_names"]
