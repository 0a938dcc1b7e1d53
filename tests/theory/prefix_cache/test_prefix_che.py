"""Che's approximation against the exact least-recently-used cache of few items, in fractions."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.prefix_cache import che, king


def by_enumeration(popularity: list[Fraction], size: int) -> Fraction:
    """King's sum over ordered lists of different items, term by term."""
    total = Fraction(0)
    for order in itertools.permutations(range(len(popularity)), size):
        weight, left = Fraction(1), Fraction(1)
        for item in order:
            weight *= popularity[item] / left
            left -= popularity[item]
        total += weight * sum(popularity[item] for item in order)
    return total


def by_chain(popularity: list[Fraction], size: int) -> float:
    """The stationary law of the Markov chain of ordered caches, by solving it."""
    states = list(itertools.permutations(range(len(popularity)), size))
    at = {state: k for k, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state in states:
        for item, p in enumerate(popularity):
            rest = tuple(x for x in state if x != item)
            matrix[at[state], at[(item, *rest)[:size]]] += float(p)
    balance = np.vstack([matrix.T - np.eye(len(states)), np.ones(len(states))])
    law = np.linalg.lstsq(balance, np.append(np.zeros(len(states)), 1.0), rcond=None)[0]
    return float(sum(w * float(sum(popularity[i] for i in state)) for state, w in zip(states, law, strict=True)))


SHARES = st.lists(st.integers(1, 30), min_size=2, max_size=6)


@settings(max_examples=40)
@given(counts=SHARES, data=st.data())
def test_king_is_the_sum_over_ordered_lists(counts: list[int], data: st.DataObject) -> None:
    popularity = [Fraction(count, sum(counts)) for count in counts]
    size = data.draw(st.integers(1, len(counts) - 1))
    assert king(popularity, size) == by_enumeration(popularity, size)


def test_king_is_the_stationary_law_of_the_cache() -> None:
    popularity = [Fraction(4, 10), Fraction(3, 10), Fraction(2, 10), Fraction(1, 10)]
    for size in (1, 2, 3):
        assert float(king(popularity, size)) == pytest.approx(by_chain(popularity, size), abs=1e-10)


def test_equal_items_hit_in_proportion() -> None:
    assert king([Fraction(1, 7)] * 7, 3) == Fraction(3, 7)
    assert che([1.0] * 7, 3).hit_share == pytest.approx(3 / 7, abs=1e-12)


# the largest difference over these laws and all sizes; it shrinks with the number of items, as the count of different
# items in a window does about its mean
@pytest.mark.parametrize(("items", "most"), [(3, 0.05), (6, 0.03), (10, 0.022)])
def test_che_is_near_king(items: int, most: float) -> None:
    worst = 0.0
    for zipf in (0.0, 0.5, 0.8, 1.0, 1.4):
        popularity = np.arange(1, items + 1) ** -zipf
        exact = [king(list(popularity), size) for size in range(1, items)]
        found = [che(popularity, size).hit_share for size in range(1, items)]
        worst = max(worst, float(np.max(np.abs(np.array(exact) - found))))
    assert worst < most
    assert worst > most / 4, "the stated error is no longer of the right size"


def test_occupancy_adds_up_to_the_cache() -> None:
    """Under Poisson references an item is there as often as its references hit: the hits add up to C."""
    answer = che(np.arange(1, 40) ** -0.9, 11)
    assert answer.hits.sum() == pytest.approx(11, abs=1e-9)


@pytest.mark.parametrize("scv", [0.2, 4.0])
def test_renewal_references_agree_with_a_simulated_cache(scv: float) -> None:
    """Gamma gaps, 40 items, a cache kept by hand: an interval of 4.4 sigma from 20 batches, and Che's own .02."""
    rng = np.random.default_rng(11)
    rates = np.arange(1, 41) ** -0.7
    events = []
    for item, rate in enumerate(rates):
        gaps = rng.gamma(1 / scv, scv / rate, size=int(3000 * rate) + 20)
        times = np.cumsum(gaps)
        events.append(np.column_stack([times, np.full(times.size, item)]))
    merged = np.concatenate(events)
    merged = merged[(merged[:, 0] < 2500) & (merged[:, 0] > 0)]
    order = merged[np.argsort(merged[:, 0]), 1].astype(int).tolist()
    held: dict[int, None] = {}
    hits = []
    for item in order:
        hits.append(item in held)
        held.pop(item, None)
        held[item] = None
        if len(held) > 12:
            del held[next(iter(held))]
    batches = np.array_split(np.array(hits[500:], dtype=float), 20)
    means = np.array([batch.mean() for batch in batches])
    answer = che(rates, 12, scv=scv)
    assert abs(means.mean() - answer.hit_share) < 4.4 * means.std(ddof=1) / np.sqrt(20) + 0.02
    poisson = che(rates, 12).hit_share
    assert (answer.hit_share > poisson) == (scv > 1), "bursts help a cache, regularity hurts it"


def test_bad_popularities_get_one_line() -> None:
    with pytest.raises(InputError, match="all 0"):
        che([0.0, 0.0], 1)
    with pytest.raises(InputError, match="rate is -1"):
        che([1.0, -1.0], 1)
    with pytest.raises(InputError, match="at most 18"):
        king([1.0] * 19, 3)
    with pytest.raises(InputError, match="below 0"):
        king([1.0, -0.5], 1)
    assert che([1.0, 2.0], 5).hit_share == 1.0
    assert king([1.0, 2.0], 5) == 1.0
