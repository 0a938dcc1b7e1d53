"""A short pure-Python simulator, written from the specification: the independent referee of the compiled engine."""

from __future__ import annotations

from collections.abc import Callable

from tileq_reference.classic import orca, sarathi, static, vllm_v0, vllm_v1
from tileq_reference.core import Simulator
from tileq_reference.gathering import nested_wait, wait
from tileq_reference.one_by_one import psjf, rad_general, srpt
from tileq_reference.parts import BLOCK, UNLIMITED, Batch, Config, Cost, Request
from tileq_reference.rules import aging_score
from tileq_reference.sglang import sglang
from tileq_reference.theory import eb_plus, rad, slai, theta

__all__ = [
    "BLOCK",
    "POLICIES",
    "UNLIMITED",
    "Batch",
    "Config",
    "Cost",
    "Request",
    "Simulator",
    "aging_score",
    "simulate",
]

POLICIES: dict[str, Callable[[Simulator], None]] = {
    "static": static,
    "orca": orca,
    "vllm_v0": vllm_v0,
    "vllm_v1": vllm_v1,
    "sarathi": sarathi,
    "rad": rad,
    "slai": slai,
    "theta": theta,
    "eb_plus": eb_plus,
    "rad_general": rad_general,
    "wait": wait,
    "nested_wait": nested_wait,
    "psjf": psjf,
    "srpt": srpt,
    "sglang": sglang,
}


def simulate(requests: list[Request], config: Config, cost: Cost, until: int | None = None) -> Simulator:
    """Run the named policy over `requests`."""
    return Simulator(requests, config, cost, POLICIES[config.policy]).run(until)
