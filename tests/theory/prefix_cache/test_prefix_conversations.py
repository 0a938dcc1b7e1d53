"""Conversations in closed form against drawn ones in an exact cache, and the limits that must come out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

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
    """Hit share of five draws of 15 minutes: Student's t at 1 % a size, 4.6, and .01 for a cache of few items."""
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


def forgetful(talks: Conversations, reach_s: float, turns_per_s: float, seed: int) -> tuple[float, float, float]:
    """Draw sessions; return how often a turn's system prompt and a later turn's history were touched within `reach_s`,
    and the mean number of tokens touched within it, at moments drawn uniformly."""
    rng = np.random.default_rng(seed)
    duration, warm = 2400.0, 300.0
    turns = []
    for session, start in enumerate(rng.uniform(0, duration, rng.poisson(turns_per_s / talks.turns * duration))):
        which, time = int(rng.choice(talks.system_prompts, p=talks.popularity)), start
        for turn in range(1, int(rng.geometric(1 / talks.turns)) + 1):
            turns.append((time, session, turn, which))
            time += rng.exponential(talks.think_s)
    turns = sorted(row for row in turns if row[0] < duration)
    last_prompt: dict[int, float] = {}
    last_turn: dict[int, float] = {}
    prompts, histories = [], []
    for time, session, turn, which in turns:
        if time > warm:
            prompts.append(time - last_prompt.get(which, -math.inf) <= reach_s)
            if turn > 1:
                histories.append(time - last_turn[session] <= reach_s)
        last_prompt[which] = last_turn[session] = time
    both, held = talks.user_tokens + talks.answer_tokens, []
    moments = np.array([row[0] for row in turns])
    for now in rng.uniform(warm, duration, 150):
        recent = turns[np.searchsorted(moments, now - reach_s) : np.searchsorted(moments, now)]
        latest = {session: turn for _, session, turn, _ in recent}
        words = sum(turn * both - (0 if talks.cache_answers else talks.answer_tokens) for turn in latest.values())
        held.append(len({which for *_, which in recent}) * talks.system_tokens + words)
    return float(np.mean(prompts)), float(np.mean(histories)), float(np.mean(held))


@pytest.mark.parametrize("cache_answers", [True, False])
def test_what_is_touched_within_a_time(cache_answers: bool) -> None:
    """Hits of both kinds and the working set of a cache that forgets after T: 16 runs, false alarms 1e-4 a number."""
    talks = replace(TALKS, cache_answers=cache_answers, system_prompts=20)
    reach_s, rate = 12.0, 2.0
    found = np.array([forgetful(talks, reach_s, rate, seed) for seed in range(16)])
    half = student.ppf(1 - 0.5e-4, 15) * found.std(axis=0, ddof=1) / 4
    size = talks.working_set_tokens(reach_s, rate)
    hits = talks.hits(size, rate)
    assert hits.reach_s == pytest.approx(reach_s, rel=1e-6)
    law = np.array([hits.system_hit, hits.history_hit, size])
    assert (np.abs(found.mean(axis=0) - law) <= half).all(), (found.mean(axis=0), law, half)
    assert (half < 0.1 * law).all()


def test_whole_blocks_by_hand() -> None:
    """Blocks of 16: of 100 system tokens 96 are found at turn 1, of a history of any length 7.5 fewer on average."""
    assert np.mean([length // 16 * 16 for length in range(1000, 1016)]) == np.mean(range(1000, 1016)) - 7.5
    talks = Conversations(2.0, 100, 30, 50, 10.0, block_tokens=16)
    # half of the turns are first ones; of the others 100 + 80 (k - 1) are old, with E[k - 1] = 2
    assert talks.hits(None).hit_tokens == pytest.approx(0.5 * 96 + 0.5 * (100 + 80 * 2 - 7.5), rel=1e-9)
    assert talks.shared_tokens(4) == pytest.approx(96 * 3 / 4)


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


@pytest.mark.parametrize("prompts", [3, 5, 8, 13, 100])
@pytest.mark.parametrize("zipf", [0.0, 0.7, 1.0])
def test_no_case_has_a_probability_below_0(prompts: int, zipf: float) -> None:
    """Where every system prompt is sure to be there the shares add up to 1 but for rounding, and may not pass it."""
    talks = Conversations(5, 500, 100, 200, 20.0, system_prompts=prompts, zipf=zipf, block_tokens=16)
    for reach_s in (1.0, 60.0, 1e4, 1e6):
        _, _, weight = talks.turn_law(reach_s, 50.0)
        assert float(weight.min()) >= 0.0
        assert float(weight.sum()) == pytest.approx(1.0, abs=1e-12)
