"""Finite laws against sums in rational numbers over their support, written independently of the library's formulas."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.lengths import (
    Clipped,
    Empirical,
    Fixed,
    Geometric,
    LengthLaw,
    LogNormal,
    MixtureLaw,
    MultipleOf,
    QuantileTable,
    Uniform,
)
from tileq_theory.lengths.mixture import mixed

Mass = dict[int, Fraction]
RELATIVE = 1e-12  # rounding of a few hundred float operations


def exact(mass: Mass, step: int) -> tuple[Fraction, ...]:
    """E[X], E[X^2], E[ceil(X/s)] and the memory s + 2s + ... + X, summed chunk by chunk."""
    assert sum(mass.values()) == 1

    def memory(x: int) -> int:
        held = list(range(step, x, step))
        return sum(held) + x

    return (
        sum((p * x for x, p in mass.items()), Fraction(0)),
        sum((p * x * x for x, p in mass.items()), Fraction(0)),
        sum((p * -(-x // step) for x, p in mass.items()), Fraction(0)),
        sum((p * memory(x) for x, p in mass.items()), Fraction(0)),
    )


def check(law: LengthLaw, mass: Mass, step: int) -> None:
    found = (law.mean(), law.second_moment(), law.chunks(step), law.chunk_memory(step))
    for value, truth in zip(found, exact(mass, step), strict=True):
        assert value == pytest.approx(float(truth), rel=RELATIVE)
    assert law.longest == max(x for x, p in mass.items() if p > 0)
    assert law.shortest == min(x for x, p in mass.items() if p > 0)
    ks = np.arange(0, int(law.longest) + 3, dtype=float)
    survival = [float(sum((p for x, p in mass.items() if x > k), Fraction(0))) for k in ks]
    assert law.survival(ks) == pytest.approx(survival, abs=1e-13)
    for first, last in ((0, 3), (2, 5), (1, 10**6)):
        zeroth = sum((p * len(range(first, min(last, -(-x // step)))) for x, p in mass.items()), Fraction(0))
        rising = sum((p * sum(range(first, min(last, -(-x // step)))) for x, p in mass.items()), Fraction(0))
        sums = law.tail_sums(step, first, last)
        assert sums == pytest.approx((float(zeroth), float(rising)), rel=RELATIVE, abs=1e-11)


def uniform_mass(low: int, high: int) -> Mass:
    return dict.fromkeys(range(low, high + 1), Fraction(1, high - low + 1))


def clipped_mass(mass: Mass, low: int, high: int) -> Mass:
    out: Mass = {}
    for x, p in mass.items():
        y = min(max(x, low), high)
        out[y] = out.get(y, Fraction(0)) + p
    return out


def mixed_mass(parts: list[tuple[Fraction, Mass]]) -> Mass:
    out: Mass = {}
    for share, mass in parts:
        for x, p in mass.items():
            out[x] = out.get(x, Fraction(0)) + share * p
    return out


def geometric_mass(p: Fraction, cap: int) -> Mass:
    q = 1 - p
    mass = {k: q ** (k - 1) * p for k in range(1, cap)}
    mass[cap] = q ** (cap - 1)
    return mass


def table_mass(levels: list[Fraction], tokens: list[Fraction]) -> Mass:
    """Nearest whole number (halves up) of the piecewise-linear quantile function, cell by cell."""
    mass: Mass = {}
    for p0, p1, a, b in zip(levels[:-1], levels[1:], tokens[:-1], tokens[1:], strict=True):
        if a == b:
            k = int((a + Fraction(1, 2)) // 1)
            mass[k] = mass.get(k, Fraction(0)) + p1 - p0
            continue
        for k in range(int(a), int(b) + 2):
            inside = min(b, k + Fraction(1, 2)) - max(a, k - Fraction(1, 2))
            if inside > 0:
                mass[k] = mass.get(k, Fraction(0)) + (p1 - p0) * inside / (b - a)
    return mass


steps = st.integers(1, 60)
small = st.integers(1, 120)


@settings(max_examples=50, deadline=None)
@given(small, steps)
def test_fixed(tokens: int, step: int) -> None:
    check(Fixed(tokens), {tokens: Fraction(1)}, step)


@settings(max_examples=50, deadline=None)
@given(small, st.integers(0, 90), steps)
def test_uniform(low: int, more: int, step: int) -> None:
    check(Uniform(low, low + more), uniform_mass(low, low + more), step)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(small, st.integers(0, 5)), min_size=1, max_size=15), steps)
def test_empirical_with_weights(rows: list[tuple[int, int]], step: int) -> None:
    total = sum(w for _, w in rows)
    if total == 0:
        return
    mass: Mass = {}
    for x, w in rows:
        mass[x] = mass.get(x, Fraction(0)) + Fraction(w, total)
    check(Empirical([x for x, _ in rows], [w for _, w in rows]), {x: p for x, p in mass.items() if p}, step)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 31), st.integers(1, 60), steps)
def test_censored_geometric(numerator: int, cap: int, step: int) -> None:
    # p = i/32 is exact in a float
    check(Geometric(p=numerator / 32, cap=cap), geometric_mass(Fraction(numerator, 32), cap), step)


def test_geometric_extremes() -> None:
    check(Geometric(p=1.0), {1: Fraction(1)}, 4)
    check(Geometric(mean=1.0, cap=7), {1: Fraction(1)}, 4)
    assert Geometric(mean=200).second_moment() == pytest.approx(200**2 * 2 - 200, rel=RELATIVE)  # (2 - p)/p^2


def test_geometric_hardly_falling_keeps_its_digits() -> None:
    """q so near 1 that closed forms with 1 - q^n lose eleven digits: against sums of the terms themselves."""
    law = Geometric(mean=1e12, cap=1000)
    k = np.arange(1000.0)
    terms = np.exp(k * np.log1p(-1e-12))
    assert law.mean() == pytest.approx(float(terms.sum()), rel=1e-14)
    assert law.second_moment() == pytest.approx(float(((2 * k + 1) * terms).sum()), rel=1e-14)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), small, st.integers(0, 10), steps)
def test_multiple(base: int, low: int, more: int, step: int) -> None:
    low = low % 12 + 1
    mass = {base * x: p for x, p in uniform_mass(low, low + more).items()}
    check(MultipleOf(base, Uniform(low, low + more)), mass, step)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 63), min_size=0, max_size=5, unique=True),
    st.lists(st.integers(0, 8 * 100), min_size=7, max_size=7),
    steps,
)
def test_quantile_table(inner: list[int], eighths: list[int], step: int) -> None:
    levels = [Fraction(0), *(Fraction(i, 64) for i in sorted(inner)), Fraction(1)]
    tokens = [1 + Fraction(t, 8) for t in sorted(eighths)[: len(levels)]]
    law = QuantileTable([float(p) for p in levels], [float(t) for t in tokens])
    check(law, table_mass(levels, tokens), step)


@settings(max_examples=50, deadline=None)
@given(small, st.integers(0, 60), st.integers(1, 40), st.integers(0, 60), steps)
def test_clipped(low: int, more: int, cut: int, width: int, step: int) -> None:
    mass = clipped_mass(uniform_mass(low, low + more), cut, cut + width)
    check(Clipped(Uniform(low, low + more), cut, cut + width), mass, step)
    geometric = clipped_mass(geometric_mass(Fraction(1, 16), 80), cut, cut + width)
    check(Clipped(Geometric(p=1 / 16, cap=80), cut, cut + width), geometric, step)


@settings(max_examples=50, deadline=None)
@given(st.tuples(small, small), st.tuples(st.integers(1, 9), st.integers(1, 9)), steps)
def test_mixtures_flat_and_general(tokens: tuple[int, int], shares: tuple[int, int], step: int) -> None:
    total = sum(shares)
    parts = [uniform_mass(tokens[0], tokens[0] + 5), uniform_mass(tokens[1], tokens[1])]
    mass = mixed_mass([(Fraction(s, total), m) for s, m in zip(shares, parts, strict=True)])
    laws = [Uniform(tokens[0], tokens[0] + 5), Fixed(tokens[1])]
    check(MixtureLaw(laws, shares), mass, step)
    check(mixed(laws, shares), mass, step)


@settings(max_examples=50, deadline=None)
@given(st.integers(10**6, 10**7), st.integers(0, 3), st.integers(1, 4096))
def test_long_lengths_lose_no_digits(low: int, more: int, step: int) -> None:
    """Differences of cubes of 10^7 would lose ten digits; the law's own sums must not."""
    law = Uniform(low, low + more)
    values = range(low, low + more + 1)

    def memory(x: int) -> int:
        m = -(-x // step)
        return step * m * (m - 1) // 2 + x

    truth = Fraction(sum(memory(x) for x in values), more + 1)
    assert law.chunk_memory(step) == pytest.approx(float(truth), rel=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.permutations(range(8)))
def test_mixture_does_not_depend_on_order(tokens: list[int], order: list[int]) -> None:
    laws = [Geometric(mean=float(t)) for t in tokens]
    shares = [1.0 + 0.1 * i for i in range(len(tokens))]
    turned = [i for i in order if i < len(tokens)]
    one = MixtureLaw(laws, shares)
    other = MixtureLaw([laws[i] for i in turned], [shares[i] for i in turned])
    assert one.mean() == pytest.approx(other.mean(), rel=1e-15)
    assert one.chunk_memory(7) == pytest.approx(other.chunk_memory(7), rel=1e-15)


def test_rad_reference_lengths() -> None:
    """RAD's instance: P = 128*U{1..8} has mean 576; O = min(floor(Exp(200)) + 1, 512) has mean 185.00078."""
    prompt = MultipleOf(128, Uniform(1, 8))
    output = Geometric.floor_exponential(200, cap=512)
    assert prompt.mean() == pytest.approx(576, rel=1e-14)
    assert prompt.chunks(128) == pytest.approx(4.5, rel=1e-14)
    assert output.mean() == pytest.approx((1 - np.exp(-512 / 200)) / (1 - np.exp(-1 / 200)), rel=1e-13)
    assert round(output.mean(), 5) == 185.00078


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Fixed(0), "tokens is 0"),
        (lambda: Fixed(10**30), "2\\^52"),
        (lambda: Uniform(5, 4), "low <= high"),
        (lambda: Uniform(0, 4), "low is 0"),
        (lambda: Geometric(), "either"),
        (lambda: Geometric(mean=3.0, p=0.5), "either"),
        (lambda: Geometric(mean=0.5), "1 token or more"),
        (lambda: Geometric(p=0.0), "probability"),
        (lambda: Geometric(p=1.5), "probability"),
        (lambda: Geometric(mean=3.0, cap=0), "cap is 0"),
        (lambda: Geometric.floor_exponential(0.0), "mean"),
        (lambda: MultipleOf(0, Fixed(3)), "base is 0"),
        (lambda: MultipleOf(3, Geometric(mean=9.0)), "reaches inf"),
        (lambda: MultipleOf(2**50, Fixed(2**15)), "2\\^52"),
        (lambda: Clipped(Fixed(3), 5, 4), "low <= high"),
        (lambda: MixtureLaw([], []), "no laws"),
        (lambda: MixtureLaw([Fixed(3)], [0.0]), "all 0"),
        (lambda: MixtureLaw([Fixed(3)], [1.0, 2.0]), "expected 1"),
        (lambda: QuantileTable([0, 1], [5, 4]), "never fall"),
        (lambda: QuantileTable([0, 0.5], [4, 5]), "from 0 to 1"),
        (lambda: QuantileTable([0, 0.5, 0.5, 1], [4, 5, 6, 7]), "from 0 to 1"),
        (lambda: QuantileTable([0, 1], [0.5, 7]), "1 or more"),
        (lambda: QuantileTable([0, 1], [5]), "expected as many"),
        (lambda: Fixed(3).chunks(0), "chunk_tokens is 0"),
    ],
)
def test_bad_input_gets_one_line(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_chunk_beyond_every_number() -> None:
    for law in (Uniform(3, 99), Geometric(mean=50), LogNormal(5, 1)):
        assert law.chunks(10**30) == pytest.approx(1)
        assert law.chunk_memory(10**30) == pytest.approx(law.mean())
