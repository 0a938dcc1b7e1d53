"""Disaggregated prefill and decode: the split of nodes, the KV transfer, and where it beats mixing."""

from tileq_theory.disaggregation.compare import (
    MODES,
    Comparison,
    WorkloadMap,
    compare_modes,
    servable,
    workload_map,
)
from tileq_theory.disaggregation.halves import DecodeHalf, PrefillHalf
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.disaggregation.maps import ModeMap, mode_map
from tileq_theory.disaggregation.plots import plot_map, plot_mode_map
from tileq_theory.disaggregation.split import Pool, Split, best_split, decode_demand, nodes_for, prefill_demand, rate_of

__all__ = [
    "MODES",
    "Comparison",
    "DecodeHalf",
    "KvLink",
    "ModeMap",
    "Pool",
    "PrefillHalf",
    "Split",
    "WorkloadMap",
    "best_split",
    "compare_modes",
    "decode_demand",
    "mode_map",
    "nodes_for",
    "plot_map",
    "plot_mode_map",
    "prefill_demand",
    "rate_of",
    "servable",
    "workload_map",
]
