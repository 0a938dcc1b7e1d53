"""Samplers and quantiles against the laws' own distribution functions.

Intervals: the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant holds for every law and sample size,
P(sup |F_n - F| > eps) <= 2 exp(-2 n eps^2); eps below makes the false-alarm rate of a test at most 1e-6. The means of
products use Hoeffding's inequality on bounded variables, at the same rate. The seeds are fixed so that a failure
repeats; a new seed would pass with probability 1 - 1e-6.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from tileq_theory.lengths import (
    Clipped,
    Empirical,
    Fixed,
    GaussianCopula,
    Geometric,
    Independent,
    JointLaw,
    JointMixture,
    LengthLaw,
    LogNormal,
    MixtureLaw,
    MultipleOf,
    Pairs,
    QuantileTable,
    Uniform,
)
from tileq_theory.lengths.mixture import mixed

DRAWS = 40_000
FALSE_ALARM = 1e-6
EPSILON = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * DRAWS))

LAWS: list[LengthLaw] = [
    Fixed(17),
    Uniform(3, 3000),
    Geometric(mean=200),
    Geometric(mean=200, cap=300),
    Geometric.floor_exponential(200, cap=512),
    Geometric(mean=1.0),
    MultipleOf(128, Uniform(1, 8)),
    MultipleOf(3, Geometric(mean=4, cap=50)),
    LogNormal(7, 0.7),
    LogNormal(6, 1.5, low=30, high=2000),
    Empirical([5, 9, 9, 700], [1, 0, 3, 1]),
    QuantileTable([0, 0.2, 0.9, 1], [1, 6.3, 6.4, 4000]),
    MixtureLaw([Geometric(mean=10), LogNormal(7, 0.3)], [0.4, 0.6]),
    mixed([Uniform(1, 100), Uniform(50, 2000), Fixed(64)], [1, 2, 1]),
    Clipped(Geometric(mean=100), 20, 150),
    Clipped(LogNormal(5, 1), 64),
]
JOINT: list[JointLaw] = [
    Independent(Uniform(10, 1600), Geometric(mean=200, cap=512)),
    Pairs([10, 20, 3000, 400], [100, 7, 9, 30]),
    Pairs([10, 20, 3000, 400], [100, 7, 9, 30], [1, 2, 0, 4]),
    JointMixture([Independent(Uniform(1, 10), Fixed(5)), Pairs([700, 900], [30, 40])], [0.7, 0.3]),
    GaussianCopula(LogNormal(6, 1, high=4096), Uniform(1, 800), 0.7),
    GaussianCopula(LogNormal(6, 1, high=4096), Geometric(mean=100, cap=900), -0.6),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
def test_draws_follow_the_law(law: LengthLaw) -> None:
    drawn = law.sample(np.random.default_rng(20240917), DRAWS)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert drawn.max() <= law.longest
    ordered = np.sort(drawn)
    seen = np.unique(ordered)
    empirical = np.searchsorted(ordered, seen, side="right") / DRAWS
    before = np.searchsorted(ordered, seen, side="left") / DRAWS
    law_at, law_below = 1 - law.survival(seen.astype(float)), 1 - law.survival(seen - 1.0)
    assert max(np.abs(empirical - law_at).max(), np.abs(before - law_below).max()) <= EPSILON


@pytest.mark.parametrize("law", [*LAWS, *JOINT], ids=lambda law: law.describe())
def test_laws_travel_to_other_processes(law: LengthLaw | JointLaw) -> None:
    back = pickle.loads(pickle.dumps(law))
    one, other = (x.sample(np.random.default_rng(3), 50) for x in (law, back))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
def test_quantile_is_the_left_continuous_inverse(law: LengthLaw) -> None:
    p = np.concatenate([np.linspace(0.001, 0.999, 333), [0.5, 0.9, 0.99, 1 - 1e-9]])
    k = law.quantile(p)
    assert (k == np.floor(k)).all()
    assert (np.diff(k[:333]) >= 0).all()
    slack = 1e-12  # a few roundings of the distribution function
    assert (1 - law.survival(k) >= p - slack).all()
    assert (1 - law.survival(k - 1) < p + slack)[k > 1].all()
    assert law.quantile(np.array([1.0]))[0] == law.longest


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
def test_moments_belong_to_the_distribution_function(law: LengthLaw) -> None:
    """The moments again from the survival function up to 2^18, for laws whose rest beyond it is nothing."""
    k = np.arange(2.0**18)
    survival = law.survival(k)
    if survival[-1] > 0 and not isinstance(law, Geometric):
        assert survival[-1] < 1e-9
    assert law.mean() == pytest.approx(float(survival.sum()), rel=1e-9)
    assert law.second_moment() == pytest.approx(float(((2 * k + 1) * survival).sum()), rel=1e-6)
    for step in (1, 7, 512):
        assert law.chunks(step) == pytest.approx(float(survival[::step].sum()), rel=1e-9)


@pytest.mark.parametrize("law", JOINT, ids=lambda law: law.describe())
def test_joint_draws_have_the_product_and_the_marginals(law: JointLaw) -> None:
    prompts, outputs = law.sample(np.random.default_rng(8), DRAWS)
    product = prompts.astype(float) * outputs
    most = law.prompt_law.longest * law.output_law.longest
    # Bernstein's inequality: |mean - truth| <= sqrt(2 v t/n) + 2 most t/(3 n) but with probability 2 exp(-t)
    t = math.log(2 / FALSE_ALARM)
    variance = 2 * float(product.var())  # the sample's own, doubled: far above its error at 40 000 draws
    bound = math.sqrt(2 * variance * t / DRAWS) + 2 * most * t / (3 * DRAWS)
    assert abs(product.mean() - law.mean_product()) <= bound
    for marginal, drawn in ((law.prompt_law, prompts), (law.output_law, outputs)):
        seen = np.unique(drawn)
        empirical = np.searchsorted(np.sort(drawn), seen, side="right") / DRAWS
        assert np.abs(empirical - (1 - marginal.survival(seen.astype(float)))).max() <= EPSILON
    assert (prompts + outputs).max() <= law.longest_context
