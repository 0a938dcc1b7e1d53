"""The hit rate of a cache by itself: against a plain cache, the trace's known figure, and Che's approximation."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefix_peers import backward_distances, che_hit_share, plain_lru, working_set_hit_share

from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.prefix_hit_rate import hit_rate
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=20), st.integers(1, 9))
def test_as_a_plain_cache(lists: list[list[int]], most: int) -> None:
    paths = BlockPaths.from_lists(lists, 16)
    assert hit_rate(paths, 16 * most).found.tolist() == plain_lru(lists, most)
    assert hit_rate(paths).found.tolist() == plain_lru(lists, 10**6)


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=20))
def test_a_larger_cache_finds_no_less_in_any_request(lists: list[list[int]]) -> None:
    found = [hit_rate(BlockPaths.from_lists(lists, 16), 16 * most).found for most in range(1, 12)]
    assert all(np.all(a <= b) for a, b in pairwise(found))


@pytest.fixture(scope="module")
def mooncake(data: Path) -> BlockPaths:
    from tileq_profiling.readers import read_trace

    trace = read_trace(data / "mooncake" / "conversation_trace.jsonl")
    assert trace.blocks is not None
    return BlockPaths.of(trace.blocks.ids, trace.blocks.offsets, trace.blocks.block_tokens)


def test_the_conversation_trace_shares_36_6_per_cent(mooncake: BlockPaths) -> None:
    """105 710 of 288 500 blocks of 512 tokens have been seen before (Qin et al., Mooncake, FAST 2025)."""
    found = hit_rate(mooncake)
    assert (int(found.found.sum()), int(found.asked.sum())) == (105_710, 288_500)
    assert found.share == pytest.approx(0.366, abs=5e-4) and found.evicted == 0


@pytest.mark.parametrize("blocks", [1000, 3000, 10_000, 30_000, 100_000, 160_000])
def test_finite_caches_by_the_working_set(mooncake: BlockPaths, blocks: int) -> None:
    """Within 3 points over sizes; Che's Poisson case of the law is out by up to 55 here, as turns follow turns."""
    paths = [mooncake.path(i) for i in range(len(mooncake))]
    predicted = working_set_hit_share(backward_distances(paths), blocks)
    assert hit_rate(mooncake, 512 * blocks).share == pytest.approx(predicted, abs=0.03)


@pytest.mark.parametrize("blocks", [10, 30, 100, 300, 900])
def test_independent_references_by_che(blocks: int) -> None:
    """Prompts of one block, drawn independently by Zipf: Che's own case, within half a point over sizes."""
    popularity = np.arange(1, 1001) ** -0.9
    popularity /= popularity.sum()
    drawn = np.random.default_rng(5).choice(1000, size=200_000, p=popularity)
    paths = BlockPaths.of(drawn, np.arange(drawn.size + 1), 16)
    found = hit_rate(paths, 16 * blocks)
    warm = found.found[20_000:].mean()
    assert warm == pytest.approx(che_hit_share(popularity, blocks), abs=0.005)


def test_bad_input() -> None:
    paths = BlockPaths.from_lists([[1]], 512)
    with pytest.raises(InputError, match="at least a block of 512 tokens"):
        hit_rate(paths, 511)
    with pytest.raises(InputError, match="no block identities"):
        hit_rate(Requests.from_arrays(prompt_tokens=[4], output_tokens=[1]))
