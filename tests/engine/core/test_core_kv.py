"""The paged cache: invariants under any sequence of operations, and agreement with the core's counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, KvCache, Scheduler
from tileq_engine.kv import KvError
from tileq_engine.registry import policy

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grow", "release", "fork", "out", "in"]),
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(1, 70),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(STEPS, st.integers(1, 12), st.integers(1, 16), st.integers(1, 15))
def test_invariants_after_any_operation(
    steps: list[tuple[str, int, int, int]], blocks: int, size: int, gap: int
) -> None:
    cache = KvCache(blocks=blocks, block_tokens=size, host_blocks=6, gap=gap)
    for what, a, b, tokens in steps:
        before = cache.used_blocks
        try:
            if what == "grow":
                cache.grow(a, tokens)
                assert len(cache.table(a)) == -(-cache.tokens(a) // size)
            elif what == "release":
                cache.release(a)
            elif what == "fork":
                cache.fork(a, b, tokens)
                assert cache.used_blocks == before
            elif what == "out":
                cache.swap_out(a)
            else:
                cache.swap_in(a)
        except KvError:
            assert cache.used_blocks == before
        cache.check()
    for request in range(5):
        cache.release(request)
    cache.check()
    assert cache.free_blocks == blocks and cache.host_blocks_used == 0


def test_requests_that_grow_in_turn_lie_in_a_row_while_there_is_room() -> None:
    cache = KvCache(blocks=14, block_tokens=16, gap=4)
    for tokens in range(16, 65, 16):
        for request in range(3):
            cache.grow(request, tokens)
    assert [cache.table(request) for request in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert cache.grow(3, 20) == [12, 13]
    cache.release(1)
    assert cache.grow(4, 40) == [4, 5, 6]
    assert cache.grow(0, 65) == [7]
    cache.check()


def test_a_shared_block_is_copied_before_it_is_written() -> None:
    cache = KvCache(blocks=6, block_tokens=16)
    cache.grow(1, 40)
    cache.fork(1, 2, 40)
    new = cache.grow(2, 41)
    assert len(new) == 1 and cache.table(2)[:2] == cache.table(1)[:2] and cache.table(2)[2] != cache.table(1)[2]
    cache.release(1)
    cache.check()
    assert cache.tokens(2) == 41 and cache.used_blocks == 3


def test_slots_address_every_token_once() -> None:
    cache = KvCache(blocks=5, block_tokens=4)
    cache.grow(1, 6)
    cache.grow(2, 9)
    flat = np.concatenate([cache.slots(1, 0, 6), cache.slots(2, 0, 9)])
    assert len(set(flat.tolist())) == 15
    assert flat[0] == cache.table(1)[0] * 4


def test_a_broken_cache_is_found() -> None:
    cache = KvCache(blocks=4)
    cache.grow(1, 20)
    cache._owners[0] += 1
    with pytest.raises(KvError, match="block 0 stands in 1 tables and counts 2"):
        cache.check()


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("order", ["fcfs", "priority"])
def test_the_core_counts_what_the_cache_holds(order: str, swap: bool) -> None:
    """Play a scheduler's decisions, preemptions included, on real blocks: the counts agree at every iteration."""
    g = np.random.default_rng(2)
    config = EngineConfig(
        token_budget=32, max_num_seqs=8, kv_tokens=320, preemption="swap" if swap else "recompute", check=True
    )
    scheduler = Scheduler(policy("vllm_v1", order=order), config, capacity=40, python=True)
    cache = KvCache(blocks=20, host_blocks=1000)
    for _ in range(40):
        scheduler.add(
            prompt_tokens=int(g.integers(1, 80)), output_tokens=int(g.integers(1, 60)), priority=int(g.integers(0, 2))
        )
    lost, ended, out = 0, 0, set()
    while ended < 40:
        batch = scheduler.decide(0)
        for i in batch.preempted.tolist():
            lost += 1
            if swap and cache.tokens(i) >= seen_prompt(scheduler, i):
                cache.swap_out(i)
                out.add(i)
            else:
                cache.release(i)
        for i, chunk, decode, context in zip(
            batch.ids.tolist(),
            batch.prefill_tokens.tolist(),
            batch.decode.tolist(),
            batch.context_tokens.tolist(),
            strict=True,
        ):
            if i in out:
                cache.swap_in(i)
                out.discard(i)
            assert cache.tokens(i) == context
            cache.grow(i, context + chunk + decode)
        cache.check()
        assert cache.used_blocks == scheduler.kv_blocks_used
        for i in scheduler.complete(10**9).tolist():
            cache.release(i)
            ended += 1
        assert cache.used_blocks == scheduler.kv_blocks_used
    assert lost > 0 and cache.used_blocks == 0


def seen_prompt(scheduler: Scheduler, i: int) -> int:
    """Return the tokens after which request `i` decodes: a victim in its prefill is computed again, not swapped."""
    return int(scheduler._state.R[i].prompt)
