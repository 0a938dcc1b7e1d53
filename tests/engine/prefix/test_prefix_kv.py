"""Real blocks with prefixes: invariants, the tokens a request reads are its own, and the core counts what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine.config import EngineConfig
from tileq_engine.kv import KvError
from tileq_engine.kv_prefix import PrefixKvCache
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.scheduler import Scheduler

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "grow", "grow", "keep", "release", "out", "in"]),
        st.integers(0, 5),
        st.integers(1, 12),
        st.integers(0, 7),
    ),
    max_size=80,
)


class Memory:
    """What lies in the blocks: every token is written once, where the cache says, and read back from there."""

    def __init__(self, blocks: int, size: int) -> None:
        self.cache, self.size = PrefixKvCache(blocks=blocks, block_tokens=size, host_blocks=99), size
        self.slots = np.full(blocks * size, -1)
        self.text: dict[int, list[int]] = {}
        self.host: dict[int, np.ndarray] = {}

    def keys(self, i: int, tokens: int) -> list[Any]:
        return [tuple(self.text[i][: k + self.size]) for k in range(0, tokens - self.size + 1, self.size)]

    def start(self, i: int, text: list[int]) -> None:
        self.text[i] = text
        self.cache.attach(i, self.keys(i, len(text)))

    def grow(self, i: int, tokens: int) -> None:
        held = self.cache.tokens(i)
        upto = min(held + tokens, len(self.text[i]))
        if upto > held:
            self.cache.grow(i, upto)
            self.slots[self.cache.slots(i, held, upto)] = self.text[i][held:upto]

    def read(self, i: int) -> list[int]:
        held = self.cache.tokens(i)
        return list(self.slots[self.cache.slots(i, 0, held)].tolist())

    def check(self) -> None:
        self.cache.check()
        for i, text in self.text.items():
            if i not in self.host:
                assert self.read(i) == text[: self.cache.tokens(i)]


@settings(max_examples=200)
@given(STEPS, st.integers(2, 12), st.integers(1, 3))
def test_a_request_reads_its_own_tokens_whatever_is_shared(steps: list[Any], blocks: int, size: int) -> None:
    memory = Memory(blocks, size)
    for what, i, tokens, word in steps:
        running, out = i in memory.text, i in memory.host
        used = memory.cache.used_blocks
        try:
            if what == "start" and not running:
                memory.start(i, [word >> k & 1 for k in range(3)] * 4)
            elif what == "grow" and running and not out:
                memory.grow(i, tokens)
            elif what == "keep" and running and not out:
                memory.cache.commit(i, memory.keys(i, memory.cache.tokens(i)))
                assert memory.cache.used_blocks <= used
            elif what == "release" and running:
                memory.cache.release(i)
                memory.host.pop(i, None)
                del memory.text[i]
            elif what == "out" and running and not out and memory.cache.tokens(i):
                memory.host[i] = np.array(memory.read(i))
                memory.cache.swap_out(i)
            elif what == "in" and out:
                memory.cache.swap_in(i)
                held = memory.host.pop(i)
                memory.slots[memory.cache.slots(i, 0, len(held))] = held
        except KvError:
            assert memory.cache.used_blocks == used
        memory.check()
    for i in list(memory.text):
        memory.cache.release(i)
    memory.cache.check()
    assert memory.cache.free_blocks == blocks and memory.cache.idle_blocks == memory.cache.kept_blocks


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("name", ["fcfs", "priority"])
def test_the_core_counts_what_the_cache_holds(name: str, swap: bool) -> None:
    """Play decisions on real blocks, prefixes attached and kept as the core says: used and idle agree throughout."""
    g = np.random.default_rng(2)
    prompt, output = g.integers(20, 80, 60), g.integers(1, 40, 60)
    paths = [[int(g.integers(2)) for _ in range((int(p) + int(o)) // 16)] for p, o in zip(prompt, output, strict=True)]
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(60, dtype=np.int64),
        prompt_tokens=prompt,
        output_tokens=output,
        priority=g.integers(0, 2, 60),
        blocks=BlockPaths.from_lists(paths, 16),
    )
    config = EngineConfig(
        token_budget=64, max_num_seqs=8, kv_tokens=320, prefix_cache=True, check=True,
        preemption="swap" if swap else "recompute",
    )  # fmt: skip
    scheduler = Scheduler(policy("vllm_v1", order=name), config, requests=asked, python=True)
    cache = PrefixKvCache(blocks=20, host_blocks=1000)
    keys = [[tuple(path[: k + 1]) for k in range(len(path))] for path in paths]
    lost, found, ended, out, cached, restored = 0, 0, 0, set(), {}, set()
    while ended < 60:
        batch = scheduler.decide(0)
        for i, swapped in reversed(list(zip(batch.preempted.tolist(), batch.swapped.tolist(), strict=True))):
            lost += 1
            keep(cache, i, keys[i], cached[i])
            restored.discard(i)
            if swapped:
                cache.swap_out(i)
                out.add(i)
            else:
                cache.release(i)
        for i, chunk, decode, context in zip(
            *(c.tolist() for c in (batch.ids, batch.prefill_tokens, batch.decode, batch.context_tokens)), strict=True
        ):
            if i in out:
                cache.swap_in(i)
                out.discard(i)
            elif not cache.table(i) and context:
                cache.attach(i, keys[i][: context // 16])
                found += context
            assert cache.tokens(i) == context
            cache.grow(i, context + chunk + decode)
            cached[i] = context + chunk + decode
        cache.check()
        assert cache.used_blocks == scheduler.kv_blocks_used
        done = scheduler.complete(10**9).tolist()
        for i in batch.ids.tolist():
            chunk = int(batch.prefill_tokens[batch.ids.tolist().index(i)])
            if chunk or i in done:
                keep(cache, i, keys[i], cached[i])
            if i in done:
                cache.release(i)
                ended += 1
        assert cache.used_blocks == scheduler.kv_blocks_used
        idle, free = scheduler.facts("idle_nodes", "free")
        assert cache.idle_blocks >= min(idle, free)  # no less is kept: here victims leave before blocks are taken
    assert lost > 0 and found > 0 and cache.used_blocks == 0


def keep(cache: PrefixKvCache, i: int, keys: list[Any], tokens: int) -> None:
    cache.commit(i, keys[: min(tokens, cache.tokens(i)) // 16])


def test_the_oldest_idle_block_goes_first() -> None:
    cache = PrefixKvCache(blocks=4)
    for i, word in enumerate("ab"):
        cache.grow(i, 32)
        cache.commit(i, [word, word * 2])
        cache.release(i)
    cache.grow(9, 16)  # of a, aa, b, bb the end of a's path goes
    assert [cache.find(k) for k in (["a", "aa"], ["b", "bb"])] == [1, 2]
    cache.attach(2, ["a"])
    cache.grow(9, 32)  # a is owned again: b's end goes
    assert [cache.find(k) for k in (["a"], ["b", "bb"])] == [1, 1]
    cache.check()


def test_bad_calls() -> None:
    cache = PrefixKvCache(blocks=4)
    cache.grow(1, 20)
    with pytest.raises(KvError, match="2 blocks are not full"):
        cache.commit(1, ["a", "b"])
    with pytest.raises(KvError, match="only a new request"):
        cache.attach(1, ["a"])
    cache.commit(1, ["a"])
    with pytest.raises(KvError, match="under another key"):
        cache.commit(1, ["b"])
