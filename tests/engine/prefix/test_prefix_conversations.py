"""Synthetic conversations: rate, lengths, who shares what, and the same sessions at every rate; replayed traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tileq_engine.conversations import Conversations
from tileq_engine.experiment_streams import Streams
from tileq_engine.prefix_hit_rate import hit_rate
from tileq_engine.replayed_requests import ReplayedRequests
from tileq_theory.errors import InputError
from tileq_theory.lengths import Geometric

SHORT = Conversations(
    turns_mean=3.0, system_prompts=4, system_tokens=100, user_tokens=20, answer_tokens=40, think_s=5.0
)


def test_the_rate_is_that_of_turns_from_the_start_on() -> None:
    """Stationary: 8 stretches of the time axis have the same mean. Chi-square with 7 degrees, false alarm 1e-4."""
    moments = [SHORT.requests(8000, rate_per_s=10.0, seed=s).arrival_ps * 1e-12 for s in range(5)]
    counts = np.concatenate([np.histogram(m, np.linspace(0, 720, 9))[0] for m in moments]).reshape(5, 8).sum(axis=0)
    # a session's turns come in a cluster: the variance of a count is E[turns^2]/E[turns] = 2 m - 1 times Poisson's
    spread = 2 * SHORT.turns_mean - 1
    expected = 5 * 720 / 8 * 10.0
    assert ((counts - expected) ** 2 / (spread * expected)).sum() < 29.88


def test_lengths_by_the_formula() -> None:
    """P_k = system + (k - 1)(user + answer) + user; of k - 1 earlier turns there are turns_mean - 1 on average."""
    law = SHORT.workload(sessions=40_960)
    ((only),) = law.classes
    prompts = only.lengths.prompts
    assert set(np.unique((prompts - 120) % 60)) == {0}
    turns = 1 + (prompts - 120) // 60
    # of all turns, the k-th is share P(turns >= k)/m: geometric again, sd sqrt(m (m - 1)); 5 sigma, clusters of m
    m, n = SHORT.turns_mean, turns.size
    assert turns.mean() == pytest.approx(m, abs=5 * np.sqrt(3 * m * m * m / n))
    assert set(only.lengths.outputs.tolist()) == {40}


def test_who_shares_what() -> None:
    """System blocks by system prompt, a session's blocks by its turns, and nothing else."""
    r = SHORT.requests(3000, rate_per_s=10.0, seed=4)
    assert r.blocks is not None and r.blocks.block_tokens == 16
    assert np.array_equal(r.blocks.lengths, (r.prompt_tokens + r.output_tokens) // 16)
    first = {tuple(r.blocks.path(i)[:6].tolist()) for i in range(len(r))}
    assert len(first) == 4  # 100 tokens of system prompt: six whole blocks, four of them
    users = [set(r.blocks.path(i)[6:].tolist()) for i in range(len(r))]
    seventh = r.blocks.parent  # below the system prompts a node has one child at most: nobody shares with another
    below = seventh[seventh >= 0]
    counts = np.bincount(below, minlength=len(seventh))
    roots = {path[-1] for path in first}
    assert all(counts[node] <= 1 for node in np.unique(np.concatenate([list(u) for u in users if u])))
    assert all(counts[node] > 1 for node in roots)


def test_popularity_is_zipf() -> None:
    skew = Conversations(system_prompts=3, system_zipf=2.0)
    assert skew.popularity.tolist() == pytest.approx([36 / 49, 9 / 49, 4 / 49])
    assert Conversations(system_prompts=5, system_zipf=0.0).popularity.tolist() == pytest.approx([0.2] * 5)


def test_turns_of_a_session_come_after_each_other_and_grow() -> None:
    r = Conversations(turns_mean=6, system_tokens=64, user_tokens=Geometric(30), answer_tokens=Geometric(50)).requests(
        2000, rate_per_s=4.0, seed=2
    )
    last: dict[int, tuple[int, int]] = {}
    for i in range(len(r)):
        path = r.blocks.path(i)
        if len(path) > 5:
            who = int(path[5])  # the first block beyond a system prompt of four and what two sessions may not share
            if who in last:
                assert last[who][0] <= int(r.arrival_ps[i]) and last[who][1] < int(r.prompt_tokens[i])
            last[who] = (int(r.arrival_ps[i]), int(r.prompt_tokens[i]))


def test_streams() -> None:
    one, two = (SHORT.requests(500, rate_per_s=3.0, seed=7) for _ in range(2))
    assert np.array_equal(one.arrival_ps, two.arrival_ps) and np.array_equal(one.blocks.nodes, two.blocks.nodes)
    other = SHORT.requests(500, rate_per_s=3.0, seed=7, replication=1)
    assert not np.array_equal(one.arrival_ps, other.arrival_ps)
    longer = SHORT.requests(900, rate_per_s=3.0, seed=7)
    assert np.array_equal(longer.arrival_ps[:500], one.arrival_ps)
    assert np.array_equal(longer.prompt_tokens[:500], one.prompt_tokens)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"turns_mean": 0.5}, "first turn"),
        ({"system_prompts": 0}, "system_prompts"),
        ({"think_s": 0.0}, "think_s"),
        ({"system_zipf": -1.0}, "system_zipf"),
        ({"user_tokens": 0}, "user_tokens"),
    ],
)
def test_bad_parameters(given: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Conversations(**given)  # type: ignore[arg-type]


def test_replayed_traces(data: Path) -> None:
    """In order, each once, whole blocks only; the first replication from the beginning on."""
    from tileq_profiling.readers import read_trace

    trace = read_trace(data / "mooncake" / "conversation_trace.jsonl")
    source = ReplayedRequests.of(trace)
    r = source.draw(3000, Streams(1, 0), 2.0)
    assert np.array_equal(r.prompt_tokens, trace.prompt_tokens[:3000])
    assert np.array_equal(r.blocks.lengths, r.prompt_tokens // 512)
    assert r.arrival_ps[-1] * 1e-12 == pytest.approx(1500, rel=0.2)
    later = source.draw(3000, Streams(1, 1), 2.0)
    assert not np.array_equal(later.prompt_tokens, r.prompt_tokens)
    whole = source.draw(12_031, Streams(1, 0), 2.0)
    assert hit_rate(whole).share == pytest.approx(0.3819, abs=5e-4)  # whole blocks: 105 592 of 276 491
    with pytest.raises(InputError, match="12031 requests with blocks and 12032"):
        source.draw(12_032, Streams(1, 0), 2.0)
