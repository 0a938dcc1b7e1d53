"""A measured run beside the simulator's: its arrivals and lengths replayed, its latencies and paths compared.

>>> from tileq_profiling.replay import Quantity
>>> Quantity("throughput_per_s", 2.0, 2.1).error
0.05
"""

from tileq_profiling.replay.comparison import Comparison, Path, Quantity
from tileq_profiling.replay.focus import focused_fit
from tileq_profiling.replay.replay import replay
from tileq_profiling.replay.settings import settings_of, vllm_policy

__all__ = [
    "Comparison",
    "Path",
    "Quantity",
    "focused_fit",
    "replay",
    "settings_of",
    "vllm_policy",
]
