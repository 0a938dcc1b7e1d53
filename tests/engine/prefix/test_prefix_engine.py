"""The prefix cache in the engine: a trace by hand, its limits, and checks that can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differential import decisions_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine.config import EngineConfig
from tileq_engine.policy import PolicyError
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.prefix_hit_rate import hit_rate
from tileq_engine.registry import policy, policy_names
from tileq_engine.requests import Requests
from tileq_engine.scheduler import Scheduler
from tileq_engine.simulator import simulate
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TICK = IterationTime.constant(0.001)
MODES = ("python", "stepped", "compiled")
BLOCK = 16
PLAIN = ("sarathi", "vllm_v0", "vllm_v1", "orca", "svf", "slai", "sglang", "rad")


def asked(paths: list[list[Any]], prompt: Any, output: Any = 2, arrival_s: Any = None, **more: Any) -> Requests:
    return Requests.from_arrays(
        prompt_tokens=np.broadcast_to(prompt, (len(paths),)).copy(),
        output_tokens=np.broadcast_to(output, (len(paths),)).copy(),
        arrival_s=np.arange(len(paths), dtype=float) if arrival_s is None else arrival_s,
        blocks=BlockPaths.from_lists(paths, BLOCK),
        **more,
    )


def config(**settings: Any) -> EngineConfig:
    return EngineConfig(**{"token_budget": 64, "max_num_seqs": 8, "prefix_cache": True, "check": True, **settings})


@pytest.mark.parametrize("mode", MODES)
def test_by_hand(mode: Any) -> None:
    """Three requests of 40 tokens that share 2 blocks, 1 block and none, one after another."""
    r = asked([["s", "a"], ["s", "a"], ["s", "b"], ["t", "a"]], 40)
    run = simulate(r, policy("sarathi"), TICK, config(trace_limit=100), mode=mode)
    chunks = [int(c) for c in run.trace.prefill_tokens if c > 0]
    assert chunks == [40, 8, 24, 40]  # 0, 2, 1 and 0 blocks of 16 found
    assert run.prefix_hit_tokens.tolist() == [0, 32, 16, 0]
    c = run.counters
    assert (c["prefix_lookups"], c["prefix_lookup_tokens"], c["prefix_hit_tokens"]) == (4, 160, 48)
    assert c["prefix_evicted_blocks"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_last_token_is_always_computed(mode: Any) -> None:
    run = simulate(asked([["s", "a"]] * 2, 32), policy("vllm_v1"), TICK, config(), mode=mode)
    assert run.prefix_hit_tokens.tolist() == [0, 16]  # both blocks are there, and one of them is computed again


def test_output_can_be_found_again() -> None:
    """The next turn of a conversation begins with the answer of the last: 20 + 28 tokens are three blocks."""
    r = asked([["u", "v", "w"], ["u", "v", "w", "x"]], [20, 70], [29, 2])
    assert simulate(r, policy("sarathi"), TICK, config()).prefix_hit_tokens.tolist() == [0, 48]


def test_the_least_recently_used_goes_first_the_end_of_a_path_before_its_beginning() -> None:
    """A cache of six blocks, prompts of three, two of them kept.

    Before c idle are a2, a, b2, b, of which c's three blocks leave three: a2 goes. Then a finds its first block; its
    three leave three of b2, b, c2, c: b2 goes, and b finds its first one.
    """
    paths = [["a", "a2"], ["b", "b2"], ["c", "c2"], ["a", "a2"], ["b", "b2"]]
    run = simulate(asked(paths, 34, 1), policy("sarathi"), TICK, config(kv_tokens=6 * BLOCK), mode="python")
    assert run.prefix_hit_tokens.tolist() == [0, 0, 0, 16, 16]
    assert run.counters["prefix_evicted_blocks"] == 3  # and c2 for b


@pytest.mark.parametrize("name", PLAIN)
def test_without_anything_shared_nothing_changes(name: str) -> None:
    """Different prompts, unbounded memory: the run is that without a cache; with sharing it is never computed more."""
    rng = np.random.default_rng(2)
    prompt, output = rng.integers(20, 90, 60), rng.integers(1, 30, 60)
    own = [[f"{i} {k}" for k in range(int(p) // BLOCK)] for i, p in enumerate(prompt)]
    given_ = {"prompt": prompt, "output": output, "arrival_s": np.cumsum(rng.exponential(0.004, 60))}
    off = simulate(asked(own, **given_), policy(name), TICK, config(prefix_cache=False, trace_limit=9999))
    on = simulate(asked(own, **given_), policy(name), TICK, config(trace_limit=9999))
    assert decisions_of(off) == decisions_of(on)
    shared = [["s"] * (int(p) // BLOCK) for p in prompt]
    hits = simulate(asked(shared, **given_), policy(name), TICK, config())
    assert hits.counters["prefill_tokens"] + hits.counters["prefix_hit_tokens"] == off.counters["prefill_tokens"]
    assert hits.counters["prefix_hit_tokens"] > 0


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_one_at_a_time_it_finds_what_a_cache_alone_finds(lists: list[list[int]]) -> None:
    """Unbounded, one after another, prompts a token longer than their blocks: no residents, nothing computed again."""
    r = asked(lists, [BLOCK * len(own) + 1 for own in lists], 1)
    run = simulate(r, policy("sarathi"), TICK, config(token_budget=4096), mode="python")
    assert run.prefix_hit_tokens.tolist() == (BLOCK * hit_rate(r.blocks).found).tolist()


def test_a_block_computed_twice_is_kept_once() -> None:
    """Two requests that come together compute the same blocks; of four only two are kept, two come back."""
    r = asked([["s", "a"]] * 2, 40, 8, arrival_s=[0.0, 0.0])
    run = simulate(r, policy("sarathi"), TICK, config(token_budget=100, kv_tokens=6 * BLOCK))
    assert run.counters["prefix_merged_blocks"] == 2 and run.counters["preemptions"] == 0


def test_a_preempted_request_finds_its_own_blocks() -> None:
    """Recomputing costs only what was given up meanwhile (vLLM v1): not the whole prompt."""
    r = asked([[f"{i}", "x", "y"] for i in range(3)], 50, 40, arrival_s=[0.0, 0.0, 0.0])
    on = simulate(r, policy("sarathi"), TICK, config(token_budget=256, kv_tokens=14 * BLOCK))
    off = simulate(r, policy("sarathi"), TICK, config(token_budget=256, kv_tokens=14 * BLOCK, prefix_cache=False))
    assert on.counters["preemptions"] > 0 and on.counters["prefix_hit_tokens"] > 0
    assert on.counters["prefill_tokens"] < off.counters["prefill_tokens"]


def test_samples_follow_the_totals() -> None:
    rng = np.random.default_rng(1)
    r = asked([["s", f"{i % 3}"] for i in range(80)], 40, 4, arrival_s=np.cumsum(rng.exponential(0.01, 80)))
    s = simulate(r, policy("sarathi"), TICK, config(kv_tokens=20 * BLOCK)).samples
    assert np.all(np.diff(s.prefix_hit_tokens) >= 0) and s.prefix_hit_tokens[-1] <= s.prefix_lookup_tokens[-1]
    assert np.all(s.prefix_idle_blocks + s.kv_blocks_used <= 20) and s.prefix_idle_blocks.max() > 0


@pytest.mark.parametrize("python", [True, False])
def test_a_cancelled_request_ends_its_references(python: bool) -> None:
    r = asked([["s", "a"]] * 6, 40, 20, arrival_s=np.zeros(6))
    s = Scheduler(policy("sarathi"), config(kv_tokens=40 * BLOCK), requests=r, python=python)
    for step in range(4):
        s.decide(step * 10**9)  # checked: references are those of the residents
        s.complete(10**9)
        s.cancel(step)
    s.decide(5 * 10**9)
    assert s.facts("held_nodes", "idle_nodes") == [2, 0]


def _faulty(change: Any) -> None:
    """Run with a check, on records that `change` has spoilt before the second decision."""
    r = asked([["s", "a"]] * 3, 40, 20, arrival_s=np.zeros(3))
    s = Scheduler(policy("sarathi"), config(), requests=r, python=True)
    s.decide(0)
    s.complete(10**9)
    state = s._state
    change(state.P, state.S[0])
    s.decide(10**9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda P, s: P.__setitem__(s.nodes, P[s.nodes] - 1), "references are"),  # a reference is forgotten
        (lambda P, s: P.__setitem__(s.nodes, -1), "shares a cached block"),  # a block is freed while referred to
        (lambda P, s: P.__setitem__(s.nodes + 5, 9), "without the one before it|references are"),
        (lambda P, s: setattr(s, "idle_nodes", 1), "idle cached blocks"),
        (lambda P, s: setattr(s, "held_nodes", 7), "not the total"),
    ],
)
def test_the_checks_can_fail(change: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        _faulty(change)
    _faulty(lambda P, s: None)


def test_bad_input() -> None:
    r = Requests.from_arrays(prompt_tokens=[100], output_tokens=[1], blocks=BlockPaths.from_lists([["s"]], 24))
    with pytest.raises(InputError, match="24 tokens and the cache's block_tokens is 16"):
        simulate(r, policy("sarathi"), TICK, config())


def test_requests_without_blocks_find_nothing() -> None:
    r = Requests.from_arrays(prompt_tokens=[100, 100], output_tokens=[1, 1])
    run = simulate(r, policy("sarathi"), TICK, config())
    assert run.counters["prefix_lookups"] == 0 and "block" in " ".join(run.notes)


def test_every_policy_takes_a_cache() -> None:
    """One busy run of each, checked at every iteration: no block freed while it is referred to."""
    rng = np.random.default_rng(3)
    needs = {"rad_general": {"levels": [(64, 32, 32, 1.0)]}}
    paths = [["s", int(rng.integers(2)), int(rng.integers(2))] for _ in range(40)]
    r = asked(paths, rng.integers(50, 60, 40), rng.integers(1, 20, 40), np.cumsum(rng.exponential(0.003, 40)))
    for name in policy_names():
        run = simulate(r, policy(name, **needs.get(name, {})), TICK, config(kv_tokens=40 * BLOCK))
        assert run.counters["prefix_hit_tokens"] > 0, name
        assert run.stop_reason == "finished", name
