"""Models, programs and closed forms of LLM inference queues; no clock, no torch, no I/O but the catalogues it ships."""

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
