"""Disaggregated prefill and decode: the split of nodes, the KV transfer, and where it beats mixing."""

from tileq_theory.disaggregation.compare import MODES, Comparison, WorkloadMap, compare_modes, plot_map, workload_map
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.disaggregation.split import Pool, Split, best_split, decode_demand, prefill_demand

__all__ = [
    "MODES",
    "Comparison",
    "KvLink",
    "Pool",
    "Split",
    "WorkloadMap",
    "best_split",
    "compare_modes",
    "decode_demand",
    "plot_map",
    "prefill_demand",
    "workload_map",
]
