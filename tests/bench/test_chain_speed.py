"""How long exact chains take: reported, never a gate (`pytest -m bench tests/bench`).

Wanted: 10^5 states in seconds.
"""

from __future__ import annotations

from typing import Any

import pytest

from tileq_theory import Geometric, IterationTime
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    PrefillFirst,
    RadRule,
    chain_capacity,
    iteration_chain,
    ttft_law,
)

pytestmark = pytest.mark.bench
Benchmark = Any
TIME = IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5, sequence_s=1e-4)


@pytest.mark.parametrize("residents", [32, 48, 64, 128])
@pytest.mark.parametrize("rule", [DecodeFirst(), PrefillFirst(), RadRule(32)], ids=lambda r: type(r).__name__)
def test_many_residents(benchmark: Benchmark, rule: BatchRule, residents: int) -> None:
    system = ChainSystem(time=TIME, rule=rule, residents=residents, prompt_tokens=20, outputs=Geometric(mean=300.0))
    rate = 0.85 * chain_capacity(system)
    answer = benchmark.pedantic(lambda: iteration_chain(system, rate_per_s=rate), rounds=2, warmup_rounds=1)
    benchmark.extra_info["states"] = answer.states
    assert answer.residual < 1e-12


def test_a_hundred_thousand_states(benchmark: Benchmark) -> None:
    system = ChainSystem(time=TIME, rule=DecodeFirst(), residents=64, prompt_tokens=20, outputs=Geometric(mean=300.0))
    rate = 0.97 * chain_capacity(system)
    answer = benchmark.pedantic(lambda: iteration_chain(system, rate_per_s=rate), rounds=1)
    benchmark.extra_info["states"] = answer.states
    assert answer.residual < 1e-11


def test_a_law_of_ttft(benchmark: Benchmark) -> None:
    system = ChainSystem(time=TIME, rule=PrefillFirst(), residents=16, prompt_tokens=20, outputs=Geometric(mean=30.0))
    answer = iteration_chain(system, rate_per_s=0.8 * chain_capacity(system))
    law = benchmark.pedantic(lambda: ttft_law(answer), rounds=2, warmup_rounds=1)
    assert law.lost < 1e-6
