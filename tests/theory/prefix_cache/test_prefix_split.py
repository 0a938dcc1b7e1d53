"""What a node finds of conversations and traces that a router splits: limits, laws, and plain simulations."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.prefix_cache import Conversations, Reuse, SplitConversations, SplitReuse, at_node

CHAT = Conversations(turns=4, system_tokens=100, user_tokens=30, answer_tokens=50, think_s=20.0, system_prompts=3)
whatever = st.builds(
    Conversations,
    turns=st.floats(1, 12),
    system_tokens=st.integers(0, 500),
    user_tokens=st.floats(1, 100),
    answer_tokens=st.floats(1, 200),
    think_s=st.floats(0.1, 100),
    system_prompts=st.integers(1, 5),
    zipf=st.floats(0, 2),
    cache_answers=st.booleans(),
    block_tokens=st.sampled_from([1, 16]),
)


@settings(max_examples=60, deadline=None)
@given(whatever, st.floats(0, 300), st.floats(0.01, 20))
def test_a_share_of_one_is_the_law_of_conversations(talks: Conversations, reach: float, rate: float) -> None:
    split = SplitConversations(talks, 1.0)
    assert split.working_set_tokens(reach, rate) == pytest.approx(talks.working_set_tokens(reach, rate), rel=1e-9)
    one, other = (law.turn_law(reach, rate) for law in (split, talks))
    assert one[1] @ one[2] == pytest.approx(other[1] @ other[2], rel=1e-9, abs=1e-9)
    assert at_node(talks, 1.0, together=False) is talks


@settings(max_examples=60, deadline=None)
@given(whatever, st.floats(0.01, 1), st.floats(0, 300), st.floats(0.01, 20))
def test_the_cases_are_a_law_and_less_share_finds_less(
    talks: Conversations, share: float, reach: float, rate: float
) -> None:
    prompt, found, chance = SplitConversations(talks, share).turn_law(reach, rate)
    assert chance.sum() == pytest.approx(1, abs=1e-9)
    assert np.all(chance >= -1e-12)
    assert np.all((found >= 0) & (found <= prompt - 1 + 1e-9))
    assert chance @ prompt == pytest.approx(talks.prompt_tokens, rel=1e-8)
    shares = (1.0, 0.7, share * 0.7)
    hits = [SplitConversations(talks, p).hits(None).hit_tokens for p in shares]
    assert hits[0] >= hits[1] - 1e-9 and hits[1] >= hits[2] - 1e-9


@settings(max_examples=30, deadline=None)
@given(whatever, st.floats(0.05, 1), st.floats(10, 1e6), st.floats(0.01, 20))
def test_reach_fills_the_cache(talks: Conversations, share: float, cache: float, rate: float) -> None:
    split = SplitConversations(talks, share)
    assert split.working_set_tokens(split.reach_s(cache, rate), rate) == pytest.approx(cache, rel=1e-6)


def visits(
    talks: Conversations, share: float, sessions: int, rng: np.random.Generator
) -> list[list[tuple[float, int]]]:
    """(time since the session began, turn) of the turns of each session that come to one node."""
    found = []
    for _ in range(sessions):
        turns = rng.geometric(1 / talks.turns)
        at = np.concatenate([[0.0], np.cumsum(rng.exponential(talks.think_s, turns - 1))])
        here = rng.random(turns) < share
        found.append([(float(t), k + 1) for k, t in enumerate(at) if here[k]])
    return found


def test_a_node_sees_geometric_sessions_with_exponential_gaps() -> None:
    """m', theta' and what is found within a reach, against sessions drawn turn by turn; four standard errors."""
    rng = np.random.default_rng(1)
    split = SplitConversations(CHAT, 0.3)
    came = [v for v in visits(CHAT, 0.3, 40_000, rng) if v]
    counts = np.array([len(v) for v in came])
    assert abs(counts.mean() - split.turns) < 4 * counts.std() / math.sqrt(len(counts))
    gaps = np.array([b[0] - a[0] for v in came for a, b in pairwise(v)])
    assert abs(gaps.mean() - split.think_s) < 4 * gaps.std() / math.sqrt(len(gaps))
    assert abs((gaps > split.think_s).mean() - math.exp(-1)) < 4 * 0.5 / math.sqrt(len(gaps))
    reach = 25.0
    per_turn = []
    for v in came:
        for n, (t, k) in enumerate(v):
            last = v[n - 1] if n else None
            hit = last is not None and t - last[0] <= reach
            per_turn.append(float(CHAT.kept_tokens(np.array([last[1] + 1.0]))[0]) if hit and last else 0.0)
            assert k > 0
    no_system = SplitConversations(
        Conversations(turns=4, system_tokens=100, user_tokens=30, answer_tokens=50, think_s=20.0, system_prompts=10**6),
        0.3,
    )
    _, found, chance = no_system.turn_law(reach, 1e-6)  # others with the same system prompt never come in between
    tokens = np.array(per_turn)
    assert abs(tokens.mean() - found @ chance) < 4 * tokens.std() / math.sqrt(len(tokens)) * 1.5  # turns of one session


def test_infinite_cache_in_closed_form() -> None:
    """A later turn finds some history with probability 1 - q^(k-1), summed over the law of k."""
    for p in (0.5, 0.1, 0.01):
        q, stop = 1 - p, 1 / CHAT.turns
        lacks = q * stop / (1 - q * (1 - stop))  # E[q^(k-1)] of later turns
        assert SplitConversations(CHAT, p).hits(None).history_hit == pytest.approx(1 - lacks, rel=1e-6)


def random_trace(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Conversations of blocks, interleaved."""
    chains: list[list[int]] = []
    open_chats: list[list[int]] = []
    fresh = iter(range(10, 10**6))
    for _ in range(3000):
        if open_chats and rng.random() < 0.7:
            at = int(rng.integers(len(open_chats)))
            open_chats[at] = [*open_chats[at], next(fresh)]
        else:
            open_chats.append([int(rng.integers(3)), next(fresh)])
            at = len(open_chats) - 1
        chains.append(open_chats[at])
        if rng.random() < 0.2:
            open_chats.pop(at)
    ids = np.concatenate([np.array(c) for c in chains])
    edges = np.concatenate([[0], np.cumsum([len(c) for c in chains])])
    return ids, edges, np.array([16 * len(c) for c in chains])


def routed_lru(ids: np.ndarray, edges: np.ndarray, nodes: int, blocks: float, rng: np.random.Generator) -> float:
    """Share of block references found when requests are sent to one of `nodes` at random, each an exact LRU cache."""
    caches: list[dict[int, None]] = [{} for _ in range(nodes)]
    hits = 0
    for begin, end in pairwise(edges.tolist()):
        cache = caches[int(rng.integers(nodes))]
        chain = ids[begin:end].tolist()
        for block in chain:
            if block not in cache:
                break
            hits += 1
        for block in reversed(chain):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > blocks:
            del cache[next(iter(cache))]
    return hits / ids.size


@pytest.mark.parametrize("blocks", [math.inf, 300, 60])
@pytest.mark.parametrize("nodes", [2, 8])
def test_a_split_trace_against_routed_caches(nodes: int, blocks: float) -> None:
    rng = np.random.default_rng(2)
    ids, edges, prompts = random_trace(rng)
    split = SplitReuse.of_blocks(ids, edges, 16, prompts + 1, share=1 / nodes)
    window = math.inf if math.isinf(blocks) else split.window(blocks)
    expected = split.hit_tokens_within(window).sum() / (16 * ids.size)
    drawn = np.array([routed_lru(ids, edges, nodes, blocks, rng) for _ in range(12)])
    half = 4.4 * drawn.std(ddof=1) / math.sqrt(12)  # t of 11 degrees at 99.9 %
    # the infinite cache is exact; the law of a finite one holds for a stationary trace, within the 3 points
    assert abs(drawn.mean() - expected) <= half + (0.0 if math.isinf(blocks) else 0.03), (drawn.mean(), expected)


def test_one_node_is_the_law_of_the_trace() -> None:
    ids, edges, prompts = random_trace(np.random.default_rng(3))
    split, whole = SplitReuse.of_blocks(ids, edges, 16, prompts, share=1.0), Reuse.of_blocks(ids, edges, 16, prompts)
    assert np.array_equal(split.hit_tokens_within(math.inf), whole.hit_tokens(None))
    for blocks in (50.0, 200.0, 1000.0):
        assert split.window(blocks) == pytest.approx(whole.window(blocks), rel=0.01)
        assert np.array_equal(split.hit_tokens_within(200.0), whole.hit_tokens_within(200.0))


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan])
def test_bad_shares(share: float) -> None:
    with pytest.raises(InputError, match="share"):
        SplitConversations(CHAT, share)
    with pytest.raises(InputError, match="share"):
        SplitReuse.of_blocks(np.array([1]), np.array([0, 1]), 16, np.array([16]), share=share)


@pytest.mark.parametrize("prompts", [3, 5, 8, 13, 100])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_no_case_of_a_split_has_a_probability_below_0(prompts: int, share: float) -> None:
    """Where every system prompt is sure to be there the shares add up to 1 but for rounding, and may not pass it."""
    talks = Conversations(5, 500, 100, 200, 20.0, system_prompts=prompts, zipf=1.0, block_tokens=16)
    for reach_s in (1.0, 60.0, 1e4, 1e6, math.inf):
        _, _, weight = SplitConversations(talks, share).turn_law(reach_s, 50.0)
        assert float(weight.min()) >= 0.0
        assert float(weight.sum()) == pytest.approx(1.0, abs=1e-9)
