"""A prefix cache under a real run: the simulator's decisions, and the tokens of a run without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.executor import TokenHashBackend, serve
from tileq_engine.executor.histories import prompt_paths, shared_prompts
from tileq_engine.executor.session import Session
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.01, token_s=1e-4, kv_token_s=1e-6, pair_s=1e-7, sequence_s=1e-5)
CONFIG = EngineConfig(token_budget=60, max_num_seqs=6, kv_tokens=20 * 16, prefix_cache=True)
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("vllm_v1", {}),
    ("vllm_v1", {"order": "priority"}),
    ("vllm_v0", {}),
    ("sarathi", {"order": "spf"}),
    ("sglang", {}),
    ("sglang", {"mixed_chunk": True, "new_token_ratio": 0.0}),
    ("slai", {}),
    ("svf", {}),
    ("orca", {"chunks": True}),
    ("priority", {"preemptive": True}),
    ("rad", {"b_col": 4, "b_lcm": 16}),
]


def asked(n: int = 40, seed: int = 4) -> Requests:
    """Prompts of up to four blocks and a rest, of two words a block: many begin alike."""
    g = np.random.default_rng(seed)
    prompt = g.integers(10, 60, n)
    paths = [[int(g.integers(2)) for _ in range(int(p) // 16)] for p in prompt]
    return Requests.from_arrays(
        arrival_s=g.exponential(0.02, n).cumsum(),
        prompt_tokens=prompt,
        output_tokens=g.integers(1, 40, n),
        priority=g.integers(0, 3, n),
        tbt_limit_s=0.2,
        blocks=BlockPaths.from_lists(paths, 16),
    )


def test_prompts_share_what_their_blocks_say() -> None:
    requests = asked()
    prompts = list(shared_prompts(requests, 97, 0))
    assert [p.size for p in prompts] == requests.prompt_tokens.tolist()
    found = prompt_paths(prompts, 16)
    pairs = set(zip(found.nodes.tolist(), requests.blocks.nodes.tolist(), strict=True))
    assert len(pairs) == len(found.parent) == len(requests.blocks.parent)  # the same nodes under other numbers
    again = list(shared_prompts(requests, 97, 0))
    assert all(np.array_equal(a, b) for a, b in zip(prompts, again, strict=True))


@pytest.mark.parametrize(("name", "params"), POLICIES, ids=str)
def test_the_simulators_decisions_and_the_tokens_of_a_run_without(name: str, params: dict[str, Any]) -> None:
    """To the picosecond; the backend reads every token of a context from the blocks and checks its place."""
    requests, rule = asked(), policy(name, **params)
    served = serve(requests, rule, TokenHashBackend(20), CONFIG, clock=TIME, live=False, check=True)
    expected = simulate(requests, rule, TIME, CONFIG, mode="stepped")
    assert served.raw.stop_reason == expected.stop_reason == "finished"
    for column in ("admit_ps", "first_token_ps", "finish_ps", "preemptions", "prefix_hit_tokens", "max_gap_ps"):
        assert np.array_equal(getattr(served.raw, column), getattr(expected, column)), column
    assert served.raw.counters["prefix_hit_tokens"] > 0
    plain = serve(requests, rule, TokenHashBackend(20), CONFIG.with_(prefix_cache=False), clock=TIME, live=False)
    assert all(np.array_equal(a, b) for a, b in zip(served.outputs, plain.outputs, strict=True))


def test_prompts_of_ones_own_are_known_by_their_tokens() -> None:
    g = np.random.default_rng(1)
    system = g.integers(0, 97, 40, dtype=np.int32)
    prompts = [np.concatenate([system, g.integers(0, 97, 8, dtype=np.int32)]) for _ in range(6)]
    requests = Requests.from_arrays(arrival_s=np.arange(6, dtype=float), prompt_tokens=[48] * 6, output_tokens=[3] * 6)
    served = serve(requests, policy("sarathi"), TokenHashBackend(20), CONFIG, clock=TIME, prompts=prompts, live=False)
    assert served.raw.prefix_hit_tokens.tolist() == [0, 32, 32, 32, 32, 32]


def test_what_a_real_run_does_not_take(tmp_path: Path) -> None:
    backend = TokenHashBackend(20)
    with pytest.raises(InputError, match="preemption 'swap'"):
        serve(asked(), policy("sarathi"), backend, CONFIG.with_(preemption="swap"), clock=TIME, live=False)
    with pytest.raises(InputError, match="a journal"):
        serve(asked(), policy("sarathi"), backend, CONFIG, clock=TIME, live=False, journal=tmp_path / "run.journal")
    with pytest.raises(InputError, match="no requests are given"):
        Session(backend, policy("sarathi"), CONFIG, capacity=4)
