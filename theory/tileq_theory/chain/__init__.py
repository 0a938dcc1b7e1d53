"""Exact iteration-level Markov chain of one node: stationary law, waiting, TTFT, capacity by mean drift."""

from tileq_theory.chain.answer import ChainAnswer
from tileq_theory.chain.latency_law import LatencyLaw
from tileq_theory.chain.phase_type import DiscretePhaseType, decode_phases
from tileq_theory.chain.rules import BatchRule, DecodeFirst, Offer, PrefillFirst, RadRule, ThresholdRule
from tileq_theory.chain.solve import chain_capacity, iteration_chain
from tileq_theory.chain.system import ChainSystem
from tileq_theory.chain.tagged import ttft_law, wait_time_law
from tileq_theory.chain.wait_law import wait_distribution

__all__ = [
    "BatchRule",
    "ChainAnswer",
    "ChainSystem",
    "DecodeFirst",
    "DiscretePhaseType",
    "LatencyLaw",
    "Offer",
    "PrefillFirst",
    "RadRule",
    "ThresholdRule",
    "chain_capacity",
    "decode_phases",
    "iteration_chain",
    "ttft_law",
    "wait_distribution",
    "wait_time_law",
]
