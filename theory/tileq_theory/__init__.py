"""Models, programs and closed forms of LLM inference queues; no clock, no torch, no I/O but the catalogues it ships."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tileq_theory.arrivals import (
    ArrivalProcess,
    Deterministic,
    GammaArrivals,
    OnOff,
    Poisson,
    TraceArrivals,
    fit_on_off,
)
from tileq_theory.conventions import ChunkCounting, TokenConvention, decode_steps
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, SolveError, TileqError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import (
    Clipped,
    Empirical,
    Fixed,
    GaussianCopula,
    Geometric,
    Independent,
    JointLaw,
    JointMixture,
    LengthLaw,
    LogNormal,
    MixtureLaw,
    MultipleOf,
    Pairs,
    QuantileTable,
    Uniform,
    parse_lengths,
)
from tileq_theory.provenance import EXACT, ErrorBand, Provenance
from tileq_theory.request_class import RequestClass, parse_class
from tileq_theory.workload import RequestSample, Workload
from tileq_theory.workloads import JointTable, fit_joint_table, named_workload, workload_facts, workload_names

if TYPE_CHECKING:
    from tileq_theory.certificates import Certificate as Certificate
    from tileq_theory.certificates import FluidModes as FluidModes
    from tileq_theory.certificates import PriorityNetwork as PriorityNetwork
    from tileq_theory.certificates import ServiceClass as ServiceClass
    from tileq_theory.certificates import certify as certify
    from tileq_theory.certificates import exclusive_modes as exclusive_modes
    from tileq_theory.certificates import lu_kumar as lu_kumar
    from tileq_theory.certificates import rad_modes as rad_modes
    from tileq_theory.certificates import work_conserving_modes as work_conserving_modes
    from tileq_theory.chain import ChainAnswer as ChainAnswer
    from tileq_theory.chain import ChainSystem as ChainSystem
    from tileq_theory.chain import DiscretePhaseType as DiscretePhaseType
    from tileq_theory.chain import LatencyLaw as LatencyLaw
    from tileq_theory.chain import chain_capacity as chain_capacity
    from tileq_theory.chain import iteration_chain as iteration_chain
    from tileq_theory.chain import ttft_law as ttft_law
    from tileq_theory.chain import wait_time_law as wait_time_law
    from tileq_theory.disaggregation import KvLink as KvLink
    from tileq_theory.disaggregation import best_split as best_split
    from tileq_theory.disaggregation import compare_modes as compare_modes
    from tileq_theory.disaggregation import workload_map as workload_map
    from tileq_theory.fluid import FluidState as FluidState
    from tileq_theory.fluid import FluidSystem as FluidSystem
    from tileq_theory.fluid import drain_time_s as drain_time_s
    from tileq_theory.fluid import equilibrium as equilibrium
    from tileq_theory.fluid import fluid_capacity_per_s as fluid_capacity_per_s
    from tileq_theory.fluid import fluid_path as fluid_path
    from tileq_theory.fluid import overload_slope_tokens_per_s as overload_slope_tokens_per_s
    from tileq_theory.fluid import plot_phase_plane as plot_phase_plane
    from tileq_theory.latency import ServiceLaw as ServiceLaw
    from tileq_theory.latency import SizingModel as SizingModel
    from tileq_theory.latency import TokenClipping as TokenClipping
    from tileq_theory.latency import batch_queue as batch_queue
    from tileq_theory.latency import batch_response_bounds as batch_response_bounds
    from tileq_theory.latency import chunked_latency as chunked_latency
    from tileq_theory.latency import mg1 as mg1
    from tileq_theory.latency import mg1_predicted as mg1_predicted
    from tileq_theory.latency import mg_c as mg_c
    from tileq_theory.latency import one_bit as one_bit
    from tileq_theory.latency import priority_classes as priority_classes
    from tileq_theory.latency import waiting_law as waiting_law
    from tileq_theory.networks import AgentNetwork as AgentNetwork
    from tileq_theory.networks import Step as Step
    from tileq_theory.networks import fork_join_response as fork_join_response
    from tileq_theory.networks import network_latency as network_latency
    from tileq_theory.networks import priority_certificate as priority_certificate
    from tileq_theory.networks import slot_verdict as slot_verdict
    from tileq_theory.networks import virtual_station as virtual_station

__all__ = [
    "EXACT",
    "ArrivalProcess",
    "ChunkCounting",
    "Clipped",
    "Demand",
    "Deterministic",
    "Empirical",
    "ErrorBand",
    "Fixed",
    "GammaArrivals",
    "GaussianCopula",
    "Geometric",
    "Independent",
    "InputError",
    "IterationTime",
    "JointLaw",
    "JointMixture",
    "JointTable",
    "LengthLaw",
    "LogNormal",
    "MixtureLaw",
    "MultipleOf",
    "OnOff",
    "Pairs",
    "Poisson",
    "Provenance",
    "QuantileTable",
    "RequestClass",
    "RequestSample",
    "SolveError",
    "TileqError",
    "TokenConvention",
    "TraceArrivals",
    "Uniform",
    "Workload",
    "decode_steps",
    "fit_joint_table",
    "fit_on_off",
    "named_workload",
    "parse_class",
    "parse_lengths",
    "workload_facts",
    "workload_names",
]

_PARTS = (
    "capacity",
    "certificates",
    "chain",
    "disaggregation",
    "fluid",
    "latency",
    "networks",
)
_HOMES = {
    "certificates": (
        "Certificate",
        "FluidModes",
        "PriorityNetwork",
        "ServiceClass",
        "certify",
        "exclusive_modes",
        "lu_kumar",
        "rad_modes",
        "work_conserving_modes",
    ),
    "chain": (
        "ChainAnswer",
        "ChainSystem",
        "DiscretePhaseType",
        "LatencyLaw",
        "chain_capacity",
        "iteration_chain",
        "ttft_law",
        "wait_time_law",
    ),
    "disaggregation": ("KvLink", "best_split", "compare_modes", "workload_map"),
    "fluid": (
        "FluidState",
        "FluidSystem",
        "drain_time_s",
        "equilibrium",
        "fluid_capacity_per_s",
        "fluid_path",
        "overload_slope_tokens_per_s",
        "plot_phase_plane",
    ),
    "latency": (
        "ServiceLaw",
        "SizingModel",
        "TokenClipping",
        "batch_queue",
        "batch_response_bounds",
        "chunked_latency",
        "mg1",
        "mg1_predicted",
        "mg_c",
        "one_bit",
        "priority_classes",
        "waiting_law",
    ),
    "networks": (
        "AgentNetwork",
        "Step",
        "fork_join_response",
        "network_latency",
        "priority_certificate",
        "slot_verdict",
        "virtual_station",
    ),
}
_HOME = {name: part for part, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Fetch the parts that need scipy, cvxpy or networkx when they are first asked for."""
    if name in _PARTS:
        return import_module(f"tileq_theory.{name}")
    if name in _HOME:
        value = getattr(import_module(f"tileq_theory.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tileq_theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PARTS, *_HOME})
