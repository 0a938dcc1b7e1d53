"""Fluid model of one node: fields, paths, rest, drain and overload of each policy."""

from tileq_theory.fluid.plot import plot_phase_plane
from tileq_theory.fluid.policies import (
    DecodeFirst,
    ExclusiveThreshold,
    Flow,
    FluidPolicy,
    PrefillFirst,
    PrefillsMixed,
    Rad,
)
from tileq_theory.fluid.rest import (
    drain_time_s,
    equilibrium,
    fluid_capacity_per_s,
    overload_slope_tokens_per_s,
    work_conserving_drain_s,
)
from tileq_theory.fluid.system import FluidState, FluidSystem
from tileq_theory.fluid.trajectory import FluidPath, field_at, fluid_path

__all__ = [
    "DecodeFirst",
    "ExclusiveThreshold",
    "Flow",
    "FluidPath",
    "FluidPolicy",
    "FluidState",
    "FluidSystem",
    "PrefillFirst",
    "PrefillsMixed",
    "Rad",
    "drain_time_s",
    "equilibrium",
    "field_at",
    "fluid_capacity_per_s",
    "fluid_path",
    "overload_slope_tokens_per_s",
    "plot_phase_plane",
    "work_conserving_drain_s",
]
