"""Models, programs and closed forms of LLM inference queues; no clock, no torch, no I/O but the catalogues it ships."""

from tileq_theory.conventions import ChunkCounting, TokenConvention, decode_steps
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, SolveError, TileqError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import EXACT, ErrorBand, Provenance

__all__ = [
    "EXACT",
    "ChunkCounting",
    "Demand",
    "ErrorBand",
    "InputError",
    "IterationTime",
    "Provenance",
    "SolveError",
    "TileqError",
    "TokenConvention",
    "decode_steps",
]
