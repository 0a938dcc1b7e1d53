"""Hits of a trace's prefix blocks: the exact cache by brute force, its limits, and the working-set law against it."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.prefix_cache import Reuse, che
from tileq_theory.prefix_cache.references import touches_of


def chains(rng: np.random.Generator, count: int, branches: int = 3, depth: int = 5) -> list[list[int]]:
    """Return chains of prefix blocks: a path down a random tree, each node with an identity of its own."""
    nodes: dict[tuple[int, ...], int] = {}
    found = []
    for _ in range(count):
        path: tuple[int, ...] = ()
        chain = []
        for _ in range(int(rng.integers(0, depth + 1))):
            path = (*path, int(rng.integers(branches)))
            chain.append(nodes.setdefault(path, len(nodes)))
        found.append(chain)
    return found


def reuse_of(given_chains: list[list[int]], block_tokens: int = 16) -> Reuse:
    offsets = np.concatenate([[0], np.cumsum([len(chain) for chain in given_chains])]).astype(np.int64)
    ids = np.array([block for chain in given_chains for block in chain], dtype=np.int64)
    prompts = np.array([max(1, block_tokens * len(chain)) for chain in given_chains], dtype=np.int64)
    return Reuse.of_blocks(ids, offsets, block_tokens, prompts)


def by_hand(given_chains: list[list[int]], size: int) -> list[int]:
    """Hits of each chain in a cache of `size` blocks that is kept by hand, newest last."""
    held: OrderedDict[int, None] = OrderedDict()
    found = []
    for chain in given_chains:
        hits = 0
        for block in chain:
            if block not in held:
                break
            hits += 1
        found.append(hits)
        for block in reversed(chain):
            held.pop(block, None)
            held[block] = None
        while len(held) > size:
            held.popitem(last=False)
    return found


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60), size=st.integers(1, 25))
def test_stack_distances_are_a_cache_kept_by_hand(seed: int, count: int, size: int) -> None:
    drawn = [*chains(np.random.default_rng(seed), count), [999_999]]
    assert reuse_of(drawn).lru_hit_blocks(size).tolist() == by_hand(drawn, size)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60))
def test_infinite_cache_misses_first_references_only(seed: int, count: int) -> None:
    drawn = [*chains(np.random.default_rng(seed), count), [999_999]]
    reuse = reuse_of(drawn)
    named = [block for chain in drawn for block in chain]
    assert reuse.infinite_hit_share == pytest.approx(1 - len(set(named)) / len(named), abs=1e-12)
    assert reuse.hit_blocks(None).sum() == len(named) - len(set(named))
    assert reuse.lru_hit_share(len(named) + 1) == reuse.infinite_hit_share
    assert reuse.hit_share(len(named) + 1) == reuse.infinite_hit_share


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), window=st.integers(1, 40))
def test_the_working_set_is_the_mean_of_its_windows(seed: int, window: int) -> None:
    """Of a trace repeated end to end, W(T) is the mean number of different blocks over all windows of T touches."""
    one = [chain for chain in chains(np.random.default_rng(seed), 12) if chain] or [[0]]
    touched = [block for chain in one for block in reversed(chain)]
    size = len(touched)
    span = min(window, size)
    circle = touched * 3
    mean = np.mean([len(set(circle[size + k - span + 1 : size + k + 1])) for k in range(size)])
    none, edges = np.zeros(size, dtype=np.int64), np.array([0, size], dtype=np.int64)
    own = Reuse(none, none, edges, 16, np.array([16 * size]), np.sort(_circular_ages(touched)))
    assert own.working_set(span) == pytest.approx(mean, abs=1e-9)
    # and the module's ages are these: those of the last of four rounds, in the order of touches
    offsets = np.concatenate([[0], np.cumsum([len(chain) for chain in one * 4])]).astype(np.int64)
    ids = np.array([block for chain in one * 4 for block in chain], dtype=np.int64)
    assert touches_of(ids, offsets).touch_age[-size:].tolist() == _circular_ages(touched).tolist()


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(0.5, 30), extra=st.floats(0, 2))
def test_what_others_take_with_every_touch_shortens_the_window(seed: int, size: float, extra: float) -> None:
    reuse = reuse_of([*chains(np.random.default_rng(seed), 80), [999_999]])
    window = reuse.window(size, extra_per_touch=extra)
    if np.isfinite(window):
        assert reuse.working_set(window) + extra * window == pytest.approx(size, rel=1e-9)


def _circular_ages(touched: list[int]) -> np.ndarray:
    size = len(touched)
    ages = []
    for k, block in enumerate(touched):
        back = next(j for j in range(1, size + 1) if touched[(k - j) % size] == block)
        ages.append(back)
    return np.array(ages, dtype=np.int64)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(0.5, 60))
def test_the_window_inverts_the_working_set(seed: int, size: float) -> None:
    reuse = reuse_of([*chains(np.random.default_rng(seed), 80), [999_999]])
    window = reuse.window(size)
    if np.isfinite(window):
        assert reuse.working_set(window) == pytest.approx(size, rel=1e-9)
    else:
        assert reuse.working_set(reuse.references) < size


def test_independent_references_give_che() -> None:
    """Under Poisson references the working-set law is Che's formula; an interval of 4.4 sigma."""
    rng = np.random.default_rng(5)
    popularity = np.arange(1, 201) ** -0.8
    popularity /= popularity.sum()
    drawn = rng.choice(200, 60_000, p=popularity)
    reuse = reuse_of([[int(block)] for block in drawn])
    for size in (5, 20, 60, 120):
        expected = che(popularity, size).hit_share
        # hits are correlated over a characteristic time at most; batches of 1000 requests say how much
        hit = (reuse.age <= reuse.window(size)).reshape(60, -1).mean(axis=1)
        assert abs(hit.mean() - expected) < 4.4 * hit.std(ddof=1) / np.sqrt(60) + 2e-3, size


def test_hits_grow_with_the_cache_and_are_prefixes() -> None:
    reuse = reuse_of(chains(np.random.default_rng(2), 400))
    sizes = np.arange(1.0, 200.0, 7.0)
    curve = reuse.curve(sizes)
    assert (np.diff(curve) >= 0).all()
    for size in (3, 30):
        for first, last in zip(reuse.offsets[:-1], reuse.offsets[1:], strict=True):
            assert (np.diff(reuse.age[first:last]) >= 0).all()
        assert reuse.hit_blocks(size).sum() == round(reuse.hit_share(size) * reuse.references)
        assert (reuse.hit_tokens(size) <= reuse.prompt_tokens - 1).all()


def test_shared_tokens_leave_the_working_set() -> None:
    """What the requests of a window hold at the same time is W(T), whoever counts."""
    reuse = reuse_of([*chains(np.random.default_rng(3), 3000, depth=4), [999_999]])
    for window in (1.0, 40.0, 333.0):
        named = reuse.references * reuse.block_tokens
        kept = 1 - reuse.shared_tokens(window).sum() / named
        # ages at arrival stand in for ages at the touch: at most a chain's length apart
        assert kept == pytest.approx(reuse.working_set(window) / window, abs=4 / window + 0.01)


def test_mooncake_hit_rates(data: Path) -> None:
    """The infinite-cache share of the trace's readme, and finite caches within 3 points over all sizes; Che is not."""
    from tileq_profiling.readers import read_trace

    trace = read_trace(data / "mooncake" / "conversation_trace.jsonl")
    assert trace.blocks is not None
    reuse = Reuse.of_blocks(trace.blocks.ids, trace.blocks.offsets, trace.blocks.block_tokens, trace.prompt_tokens)
    assert round(100 * reuse.infinite_hit_share, 1) == 36.6
    sizes = np.unique(np.geomspace(1, 200_000, 60).astype(int))
    apart = [abs(reuse.hit_share(float(size)) - reuse.lru_hit_share(int(size))) for size in sizes]
    assert max(apart) < 0.03
    assert max(apart) < 0.003, "it agrees ten times better than asked: say so when that changes"
    counts = np.unique(trace.blocks.ids, return_counts=True)[1]
    independent = [abs(che(counts, float(size)).hit_share - reuse.lru_hit_share(size)) for size in (20_000, 100_000)]
    assert max(independent) > 0.3, "independent references misjudge this trace: blocks are popular for minutes"


@pytest.mark.parametrize(
    ("ids", "offsets", "prompts", "words"),
    [
        ([], [0, 0], [1], "no block identities"),
        ([1, 2], [0, 1], [1], "offsets"),
        ([1, 1], [0, 2], [32], "twice"),
        ([1, 2], [0, 2], [32, 32], "as many"),
    ],
)
def test_bad_blocks_get_one_line(ids: list[int], offsets: list[int], prompts: list[int], words: str) -> None:
    arrays = [np.array(values, dtype=np.int64) for values in (ids, offsets, prompts)]
    with pytest.raises(InputError, match=words) as error:
        Reuse.of_blocks(arrays[0], arrays[1], 16, arrays[2])
    assert "\n" not in str(error.value)
