"""Tileq: from a GPU, a model and a trace to the throughput-optimal tile, and from the tile to the schedule.

    import tileq as tq

    answer = tq.plan(gpu="h100-sxm", model="llama-3.1-8b", workload="chat", tbt=0.05)
    answer.rate_per_s, answer.token_budget, answer.binding

The public names live in `tileq_theory` (models, programs, closed forms), `tileq_engine` (requests in motion) and
`tileq_profiling` (what others recorded). They are fetched when first used, so importing `tileq` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tileq import analysis as analysis
    from tileq.calibrating import Calibrated as Calibrated
    from tileq.calibrating import calibrate as calibrate
    from tileq.catalogs import Catalog as Catalog
    from tileq.catalogs import catalog as catalog
    from tileq.comparing import PolicyComparison as PolicyComparison
    from tileq.comparing import compare as compare
    from tileq.measuring import Profiled as Profiled
    from tileq.measuring import profile as profile
    from tileq.planning import Plan as Plan
    from tileq.planning import plan as plan
    from tileq.planning_cluster import ClusterPlan as ClusterPlan
    from tileq.planning_cluster import plan_cluster as plan_cluster
    from tileq.regions import Region as Region
    from tileq.regions import region as region
    from tileq.reproducing import reproduce as reproduce
    from tileq.simulating import Simulation as Simulation
    from tileq.simulating import simulate as simulate
    from tileq.simulating_cluster import ClusterSimulation as ClusterSimulation
    from tileq.validating import Validated as Validated
    from tileq.validating import validate as validate
    from tileq_engine.capacity_search import capacity_search as search_capacity  # noqa: F401
    from tileq_engine.capacity_search_criteria import Stable as Stable
    from tileq_engine.capacity_search_criteria import Within as Within
    from tileq_engine.capacity_search_criteria import all_of as all_of
    from tileq_engine.config import EngineConfig as EngineConfig
    from tileq_engine.experiment import Replications as Replications
    from tileq_engine.experiment_engine import replicate_policy as replicate_policy
    from tileq_engine.experiment_engine import simulate_policy as simulate_policy
    from tileq_engine.policy import Policy as Policy
    from tileq_engine.policy import PolicyError as PolicyError
    from tileq_engine.registry import policy as policy
    from tileq_engine.registry import policy_names as policy_names
    from tileq_engine.requests import Requests as Requests
    from tileq_engine.run import Run as Run
    from tileq_engine.run import Slo as Slo
    from tileq_engine.scheduler import Scheduler as Scheduler
    from tileq_engine.simulator import RawRun as RawRun
    from tileq_engine.simulator import simulate as simulate_requests  # noqa: F401
    from tileq_engine.sweep import Sweep as Sweep
    from tileq_engine.sweep import sweep as sweep_rates  # noqa: F401
    from tileq_profiling.readers import Trace as Trace
    from tileq_profiling.readers import read_trace as read_trace
    from tileq_profiling.readers import reader_names as reader_names
    from tileq_theory import certificates as certificates
    from tileq_theory import chain as chain
    from tileq_theory import disaggregation as disaggregation
    from tileq_theory import fluid as fluid
    from tileq_theory import latency as latency
    from tileq_theory import networks as networks
    from tileq_theory.arrivals import ArrivalProcess as ArrivalProcess
    from tileq_theory.arrivals import GammaArrivals as GammaArrivals
    from tileq_theory.arrivals import OnOff as OnOff
    from tileq_theory.arrivals import Poisson as Poisson
    from tileq_theory.calibrations import calibration_names as calibration_names
    from tileq_theory.calibrations import named_calibration as named_calibration
    from tileq_theory.capacity import Capacity as Capacity
    from tileq_theory.capacity import Level as Level
    from tileq_theory.capacity import Limits as Limits
    from tileq_theory.capacity import StabilityRegion as StabilityRegion
    from tileq_theory.capacity import TilePlan as TilePlan
    from tileq_theory.capacity import capacity as capacity
    from tileq_theory.capacity import check_kkt as check_kkt
    from tileq_theory.capacity import exclusive_capacity as exclusive_capacity
    from tileq_theory.capacity import rad_capacity as rad_capacity
    from tileq_theory.capacity import sarathi_capacity as sarathi_capacity
    from tileq_theory.capacity import stability_region as stability_region
    from tileq_theory.capacity import static_capacity as static_capacity
    from tileq_theory.capacity import tile_plan as tile_plan
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
    from tileq_theory.closed_forms import ClosedForm as ClosedForm
    from tileq_theory.closed_forms import closed_form as closed_form
    from tileq_theory.closed_forms import closed_forms as closed_forms
    from tileq_theory.cluster import NodeGroup as NodeGroup
    from tileq_theory.cluster import cluster_capacity as cluster_capacity
    from tileq_theory.demand import Demand as Demand
    from tileq_theory.disaggregation import KvLink as KvLink
    from tileq_theory.disaggregation import best_split as best_split
    from tileq_theory.disaggregation import compare_modes as compare_modes
    from tileq_theory.disaggregation import workload_map as workload_map
    from tileq_theory.errors import InputError as InputError
    from tileq_theory.errors import SolveError as SolveError
    from tileq_theory.errors import TileqError as TileqError
    from tileq_theory.fluid import FluidState as FluidState
    from tileq_theory.fluid import FluidSystem as FluidSystem
    from tileq_theory.fluid import drain_time_s as drain_time_s
    from tileq_theory.fluid import equilibrium as equilibrium
    from tileq_theory.fluid import fluid_capacity_per_s as fluid_capacity_per_s
    from tileq_theory.fluid import fluid_path as fluid_path
    from tileq_theory.fluid import overload_slope_tokens_per_s as overload_slope_tokens_per_s
    from tileq_theory.fluid import plot_phase_plane as plot_phase_plane
    from tileq_theory.hardware import Gpu as Gpu
    from tileq_theory.hardware import Model as Model
    from tileq_theory.hardware import gpu_names as gpu_names
    from tileq_theory.hardware import kv_capacity_tokens as kv_capacity_tokens
    from tileq_theory.hardware import load_gpu as load_gpu
    from tileq_theory.hardware import load_model as load_model
    from tileq_theory.hardware import model_names as model_names
    from tileq_theory.hardware import roofline as roofline
    from tileq_theory.iteration_time import IterationTime as IterationTime
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
    from tileq_theory.lengths import Fixed as Fixed
    from tileq_theory.lengths import Geometric as Geometric
    from tileq_theory.lengths import Independent as Independent
    from tileq_theory.lengths import LogNormal as LogNormal
    from tileq_theory.lengths import Pairs as Pairs
    from tileq_theory.lengths import Uniform as Uniform
    from tileq_theory.networks import AgentNetwork as AgentNetwork
    from tileq_theory.networks import Step as Step
    from tileq_theory.networks import fork_join_response as fork_join_response
    from tileq_theory.networks import network_latency as network_latency
    from tileq_theory.networks import priority_certificate as priority_certificate
    from tileq_theory.networks import slot_verdict as slot_verdict
    from tileq_theory.networks import virtual_station as virtual_station
    from tileq_theory.provenance import ErrorBand as ErrorBand
    from tileq_theory.provenance import Provenance as Provenance
    from tileq_theory.request_class import RequestClass as RequestClass
    from tileq_theory.request_class import parse_class as parse_class
    from tileq_theory.workload import Workload as Workload
    from tileq_theory.workloads import named_workload as named_workload
    from tileq_theory.workloads import workload_names as workload_names

_HOMES = {
    "tileq.calibrating": ("Calibrated", "calibrate"),
    "tileq.catalogs": ("Catalog", "catalog"),
    "tileq.comparing": ("PolicyComparison", "compare"),
    "tileq.measuring": ("Profiled", "profile"),
    "tileq.planning": ("Plan", "plan"),
    "tileq.planning_cluster": ("ClusterPlan", "plan_cluster"),
    "tileq.regions": ("Region", "region"),
    "tileq.reproducing": ("reproduce",),
    "tileq.simulating": ("Simulation", "simulate"),
    "tileq.simulating_cluster": ("ClusterSimulation",),
    "tileq.validating": ("Validated", "validate"),
    "tileq_engine": (
        "EngineConfig",
        "Policy",
        "PolicyError",
        "RawRun",
        "Replications",
        "Requests",
        "Run",
        "Scheduler",
        "Slo",
        "Stable",
        "Sweep",
        "Within",
        "all_of",
        "policy_names",
        "replicate_policy",
        "search_capacity",
        "simulate_policy",
        "simulate_requests",
        "sweep_rates",
    ),
    "tileq_engine.registry": ("policy",),
    "tileq_profiling.readers": ("Trace", "read_trace", "reader_names"),
    "tileq_theory.arrivals": ("ArrivalProcess", "GammaArrivals", "OnOff", "Poisson"),
    "tileq_theory.calibrations": ("calibration_names", "named_calibration"),
    "tileq_theory.capacity": (
        "Capacity",
        "Level",
        "Limits",
        "StabilityRegion",
        "TilePlan",
        "capacity",
        "check_kkt",
        "exclusive_capacity",
        "rad_capacity",
        "sarathi_capacity",
        "stability_region",
        "static_capacity",
        "tile_plan",
    ),
    "tileq_theory.closed_forms": ("ClosedForm", "closed_form", "closed_forms"),
    "tileq_theory.cluster": ("NodeGroup", "cluster_capacity"),
    "tileq_theory.demand": ("Demand",),
    "tileq_theory.errors": ("InputError", "SolveError", "TileqError"),
    "tileq_theory.hardware": (
        "Gpu",
        "Model",
        "gpu_names",
        "kv_capacity_tokens",
        "load_gpu",
        "load_model",
        "model_names",
        "roofline",
    ),
    "tileq_theory.iteration_time": ("IterationTime",),
    "tileq_theory.lengths": ("Fixed", "Geometric", "Independent", "LogNormal", "Pairs", "Uniform"),
    "tileq_theory.provenance": ("ErrorBand", "Provenance"),
    "tileq_theory.request_class": ("RequestClass", "parse_class"),
    "tileq_theory.workload": ("Workload",),
    "tileq_theory.workloads": ("named_workload", "workload_names"),
    "tileq_theory.certificates": (
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
    "tileq_theory.chain": (
        "ChainAnswer",
        "ChainSystem",
        "DiscretePhaseType",
        "LatencyLaw",
        "chain_capacity",
        "iteration_chain",
        "ttft_law",
        "wait_time_law",
    ),
    "tileq_theory.disaggregation": ("KvLink", "best_split", "compare_modes", "workload_map"),
    "tileq_theory.fluid": (
        "FluidState",
        "FluidSystem",
        "drain_time_s",
        "equilibrium",
        "fluid_capacity_per_s",
        "fluid_path",
        "overload_slope_tokens_per_s",
        "plot_phase_plane",
    ),
    "tileq_theory.latency": (
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
    "tileq_theory.networks": (
        "AgentNetwork",
        "Step",
        "fork_join_response",
        "network_latency",
        "priority_certificate",
        "slot_verdict",
        "virtual_station",
    ),
}
# whole parts: their names are those of the field, and some occur in two (chain.DecodeFirst, fluid.DecodeFirst)
_PARTS = {
    "analysis": "tileq.analysis",
    "certificates": "tileq_theory.certificates",
    "chain": "tileq_theory.chain",
    "disaggregation": "tileq_theory.disaggregation",
    "fluid": "tileq_theory.fluid",
    "latency": "tileq_theory.latency",
    "networks": "tileq_theory.networks",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted([*_HOME, *_PARTS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(_PARTS[name])
    if name not in _HOME:
        raise AttributeError(f"module 'tileq' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PARTS})
