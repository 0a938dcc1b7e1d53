"""Conversations in closed form against drawn ones in an exact cache, and the limits that must come out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.prefix_cache import Conversations, Reuse


def drawn(talks: Conversations, turns_per_s: float, duration_s: float, seed: int) -> Reuse:
    """Return the blocks (of one token) of sessions drawn by the law, answers dropped, in order of arrival."""
    rng = np.random.default_rng(seed)
    sessions = rng.poisson(turns_per_s / talks.turns * duration_s)
    rows = []
    fresh = 1_000_000
    for start in np.sort(rng.uniform(0, duration_s, sessions)):
        which = int(rng.choice(talks.system_prompts, p=talks.popularity))
        chain = [which * 10_000 + k for k in range(talks.system_tokens)]
        time = start
        for turn in range(int(rng.geometric(1 / talks.turns))):
            grown = int(talks.user_tokens) + (int(talks.answer_tokens) if turn else 0)
            chain = [*chain, *range(fresh, fresh + grown)]
            fresh += grown
            rows.append((time, chain))
            time += rng.exponential(talks.think_s)
    rows.sort(key=lambda row: row[0])
    ids = np.array([block for _, chain in rows for block in chain], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(chain) for _, chain in rows])]).astype(np.int64)
    prompts = np.array([len(chain) for _, chain in rows], dtype=np.int64)
    return Reuse.of_blocks(ids, offsets, 1, prompts)


TALKS = Conversations(
    turns=3.0, system_tokens=6, user_tokens=2, answer_tokens=3, think_s=20.0, system_prompts=5, zipf=1.0,
    cache_answers=False,
)  # fmt: skip


@pytest.mark.parametrize("cache_tokens", [60, 200, 600])
def test_closed_form_against_an_exact_cache(cache_tokens: int) -> None:
    """Hit share of five drawn hours; 4.6 Student intervals of five runs at 3e-3, and .01 for a cache of few items."""
    rate = 3.0
    expected = TALKS.hits(cache_tokens, rate)
    found = []
    for seed in range(5):
        reuse = drawn(TALKS, rate, 900.0, seed)
        late = reuse.offsets[reuse.requests // 5]  # the first fifth fills the cache
        found.append(float(np.mean(reuse.distance[late:] < cache_tokens)))
    spread = np.std(found, ddof=1) / math.sqrt(5)
    assert abs(np.mean(found) - expected.hit_share) < 4.6 * spread + 0.01


def test_infinite_cache_finds_all_but_the_new_words() -> None:
    found = TALKS.hits(None)
    mean_new = TALKS.user_tokens + (1 - 1 / TALKS.turns) * TALKS.answer_tokens
    assert found.hit_tokens == pytest.approx(TALKS.prompt_tokens - mean_new, rel=1e-9)
    kept = Conversations(3.0, 6, 2, 3, 20.0, cache_answers=True).hits(None)
    assert kept.hit_tokens == pytest.approx(TALKS.prompt_tokens - TALKS.user_tokens, rel=1e-9)


@settings(max_examples=40)
@given(
    turns=st.floats(1, 20), system=st.integers(0, 3000), user=st.integers(1, 500), answer=st.integers(1, 500),
    prompts=st.integers(1, 40), rate=st.floats(0.01, 50), size=st.floats(1, 1e7),
)  # fmt: skip
def test_reach_inverts_the_working_set_and_shares_are_shares(
    turns: float, system: int, user: int, answer: int, prompts: int, rate: float, size: float
) -> None:
    talks = Conversations(turns, system, user, answer, 30.0, system_prompts=prompts, zipf=0.7, block_tokens=16)
    reach = talks.reach_s(size, rate)
    assert talks.working_set_tokens(reach, rate) == pytest.approx(size, rel=1e-6)
    found = talks.hits(size, rate)
    more = talks.hits(2 * size, rate)
    assert 0 <= found.hit_share < 1
    assert found.hit_share <= more.hit_share + 1e-12 <= talks.hits(None).hit_share + 2e-9
    prompt, cached, weight = talks.turn_law(reach, rate)
    assert weight.sum() == pytest.approx(1, abs=1e-9)
    assert ((cached >= 0) & (cached <= prompt - 1)).all()
    assert float(weight @ prompt) == pytest.approx(talks.prompt_tokens, rel=1e-9)


def test_the_working_set_grows_by_what_misses() -> None:
    """W'(t) is the rate of touched tokens older than t (Denning): the two closed forms are one law."""
    talks, rate, step = TALKS, 2.0, 1e-4
    for reach in (0.5, 5.0, 50.0, 400.0):
        slope = (talks.working_set_tokens(reach + step, rate) - talks.working_set_tokens(reach - step, rate)) / (
            2 * step
        )
        prompt, cached, weight = talks.turn_law(reach, rate)
        assert slope == pytest.approx(rate * float(weight @ (prompt - cached)), rel=1e-5)


def test_shared_tokens_count_each_prompt_once() -> None:
    talks = Conversations(1.0, 100, 10, 10, 1.0, system_prompts=1)
    assert talks.shared_tokens(1) == 0
    assert talks.shared_tokens(4) == pytest.approx(75)
    many = Conversations(1.0, 100, 10, 10, 1.0, system_prompts=1000)
    assert many.shared_tokens(4) == pytest.approx(100 * (1 - 1000 * (1 - 0.999**4) / 4))


def test_bad_conversations_get_one_line() -> None:
    with pytest.raises(InputError, match=r"turns is 0\.5"):
        Conversations(0.5, 10, 10, 10, 1.0)
    with pytest.raises(InputError, match="think_s is 0"):
        Conversations(2.0, 10, 10, 10, 0.0)
    with pytest.raises(InputError, match="turns_per_s is not given"):
        TALKS.hits(100.0)
