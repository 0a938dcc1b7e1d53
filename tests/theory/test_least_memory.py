"""The least KV over chunkings: the law's formula against brute force over all chunkings of small prompts."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.lengths import Empirical, Fixed, Geometric, Independent, Uniform


@cache
def least(prompt: int, chunk: int) -> int:
    """Smallest sum of held tokens over every sequence of chunks of at most `chunk` tokens."""
    if prompt == 0:
        return 0
    return min(prompt + least(prompt - last, chunk) for last in range(1, min(prompt, chunk) + 1))


@pytest.mark.parametrize(("prompt", "chunk", "expected"), [(24, 6, 60), (25, 6, 65), (7, 7, 7), (8, 7, 9)])
def test_remainder_first_is_the_least(prompt: int, chunk: int, expected: int) -> None:
    assert least(prompt, chunk) == expected
    assert Fixed(prompt).least_memory(chunk) == expected
    assert Fixed(249).least_memory(62) == 625  # the example of the conventions page


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 70))
def test_of_an_empirical_law(values: list[int], chunk: int) -> None:
    exact = Fraction(sum(least(v, chunk) for v in values), len(values))
    assert Empirical(values).least_memory(chunk) == pytest.approx(float(exact), rel=1e-12)


def test_of_laws_without_end_and_never_above_whole_chunks() -> None:
    law = Geometric(mean=40)
    q = 1 - 1 / 40
    exact = math.fsum(q ** (k - 1) * (1 - q) * sum(range(k, 0, -16)) for k in range(1, 3000))
    assert law.least_memory(16) == pytest.approx(exact, rel=1e-8)
    joint = Independent(Uniform(1, 300), Fixed(5))
    for chunk in (3, 17, 64, 299, 300):
        whole = joint.demand(chunk_tokens=chunk).memory_iterations
        assert joint.demand(chunk_tokens=chunk, counting="least").memory_iterations <= whole
