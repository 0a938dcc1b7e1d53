"""Joint laws: the demand against sums over the rows or the support, and the numbers of the sources."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.demand import Demand
from tileq_theory.errors import InputError
from tileq_theory.lengths import (
    Empirical,
    Fixed,
    GaussianCopula,
    Geometric,
    Independent,
    JointLaw,
    JointMixture,
    LengthLaw,
    LogNormal,
    MultipleOf,
    Pairs,
    Uniform,
)

lengths = st.integers(1, 400)
rows = st.lists(st.tuples(lengths, lengths, st.integers(0, 4)), min_size=1, max_size=12).filter(
    lambda r: any(w for *_, w in r)
)


def by_iterations(pairs: list[tuple[int, int, Fraction]], chunk: int, convention: str) -> list[Fraction]:
    """P, D, G, A, g, u by walking through every iteration of every request, as the demand's definition says."""
    total = [Fraction(0)] * 6
    for prompt, output, weight in pairs:
        decodes = output if convention == "paper" else output - 1
        contexts = [prompt + j for j in range(1, decodes + 1)]
        ends = [*range(chunk, prompt, chunk), prompt]
        attention = sum(range(1, prompt + 1))
        each = (prompt, decodes, sum(contexts), attention, sum(ends) + sum(contexts), len(ends) + decodes)
        total = [t + weight * v for t, v in zip(total, each, strict=True)]
    return total


@settings(max_examples=60, deadline=None)
@given(rows, st.integers(1, 500), st.sampled_from(["engine", "paper"]))
def test_pairs_against_a_walk_through_every_iteration(
    given_rows: list[tuple[int, int, int]], chunk: int, convention: str
) -> None:
    weight = sum(w for *_, w in given_rows)
    law = Pairs([p for p, *_ in given_rows], [o for _, o, _ in given_rows], [w for *_, w in given_rows])
    demand = law.demand(chunk_tokens=chunk, convention=convention)  # type: ignore[arg-type]
    truth = by_iterations([(p, o, Fraction(w, weight)) for p, o, w in given_rows], chunk, convention)
    assert demand.vector() == pytest.approx([float(t) for t in truth], rel=1e-12)
    kept = [(p, o) for p, o, w in given_rows if w]
    assert demand.longest_prompt_tokens == max(p for p, _ in kept)
    assert demand.longest_context_tokens == max(p + o for p, o in kept)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(1, 30), st.integers(1, 8), st.integers(1, 300))
def test_independent_is_all_pairs(low: int, output: int, width: int, chunk: int) -> None:
    law = Independent(Uniform(low, low + width), Uniform(output, output + 3))
    every = list(itertools.product(range(low, low + width + 1), range(output, output + 4)))
    truth = by_iterations([(p, o, Fraction(1, len(every))) for p, o in every], chunk, "engine")
    assert law.demand(chunk_tokens=chunk).vector() == pytest.approx([float(t) for t in truth], rel=1e-12, abs=1e-12)
    assert law.correlation() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("prompt", "output", "memory"),
    [
        (Uniform(10, 1600), Uniform(10, 1600), 1_079_151.333),
        (Uniform(10, 1066), Uniform(10, 2133), 1_339_675.415),
    ],
)
def test_nie_memory_iterations(prompt: Uniform, output: Uniform, memory: float) -> None:
    """Nie, Si, Zhou (arXiv 2605.04595): E[g] of their two workloads, chunks of 512 tokens."""
    law = Independent(prompt, output)
    demand = law.demand(chunk_tokens=512, convention="paper", counting="fluid")
    assert round(demand.memory_iterations, 3) == memory

    # g(s, o) = ((1 + s/512) s + 2 o s + (1 + o) o)/2 as printed: its mean from one-dimensional rational sums
    def moments(u: Uniform) -> tuple[Fraction, Fraction]:
        n = u.high - u.low + 1
        return Fraction(sum(range(u.low, u.high + 1)), n), Fraction(sum(k * k for k in range(u.low, u.high + 1)), n)

    (s1, s2), (o1, o2) = moments(prompt), moments(output)
    truth = (s1 + s2 / 512 + 2 * o1 * s1 + o1 + o2) / 2
    assert demand.memory_iterations == pytest.approx(float(truth), rel=1e-14)


def test_rad_tokens() -> None:
    """RAD's reference instance (arXiv 2508.01002) in the paper convention: E[P] = 576, E[O] = 185.00078."""
    law = Independent(MultipleOf(128, Uniform(1, 8)), Geometric.floor_exponential(200, cap=512))
    demand = law.demand(chunk_tokens=128, convention="paper")
    assert demand.prefill_tokens == pytest.approx(576)
    assert round(demand.decode_tokens, 5) == 185.00078
    assert demand.slot_iterations == pytest.approx(4.5 + demand.decode_tokens)


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(1, 64))
def test_fluid_equals_whole_where_chunks_divide_prompts(given_rows: list[tuple[int, int, int]], chunk: int) -> None:
    law = Pairs([chunk * p for p, *_ in given_rows], [o for _, o, _ in given_rows])
    whole = law.demand(chunk_tokens=chunk, counting="whole").vector()
    assert law.demand(chunk_tokens=chunk, counting="fluid").vector() == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("counting", ["whole", "fluid"])
def test_many_chunk_sizes_at_once(counting: str) -> None:
    law = Pairs([100, 513, 7, 2048], [5, 6, 700, 8])
    sizes = np.arange(1, 3000, 37)
    many = law.demand_by_chunk(sizes, convention="paper", counting=counting)  # type: ignore[arg-type]
    each = [law.demand(chunk_tokens=int(s), convention="paper", counting=counting) for s in sizes]  # type: ignore[arg-type]
    assert many.memory_iterations.tolist() == [d.memory_iterations for d in each]
    assert many.slot_iterations.tolist() == [d.slot_iterations for d in each]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(lengths, lengths), min_size=1, max_size=6), st.data())
def test_mixture_is_linear_and_blind_to_order(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    shares = data.draw(st.lists(st.floats(0.01, 5), min_size=len(parts), max_size=len(parts)))
    order = data.draw(st.permutations(range(len(parts))))
    laws: list[JointLaw] = [Independent(Geometric(mean=float(p), cap=900), Fixed(o)) for p, o in parts]
    chunk = data.draw(st.integers(1, 500))
    mixture = JointMixture(laws, shares).demand(chunk_tokens=chunk)
    mean = Demand.mix([law.demand(chunk_tokens=chunk) for law in laws], shares)
    assert mixture.vector() == pytest.approx(mean.vector(), rel=1e-12, abs=1e-9)
    turned = JointMixture([laws[i] for i in order], [shares[i] for i in order]).demand(chunk_tokens=chunk)
    assert turned.vector() == pytest.approx(mixture.vector(), rel=1e-13, abs=1e-9)


def test_mixture_of_pairs_and_laws_keeps_correlation() -> None:
    """Two fixed pairs, equally likely: a law with correlation 1 whose marginals alone would say E[P O] = 2000."""
    law = JointMixture([Pairs([30], [150]), Independent(Fixed(10), Fixed(50))], [1, 1])
    assert law.mean_product() == 2500
    assert law.correlation() == pytest.approx(1)
    assert law.longest_context == 180


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(2, 9))
def test_scaling_every_length(prompt: int, output: int, factor: int) -> None:
    """Lengths and chunk all times f: P grows as f, G and A toward f^2 up to their linear terms, chunks not at all."""
    one = Pairs([prompt], [output]).demand(chunk_tokens=8, convention="paper")
    more = Pairs([factor * prompt], [factor * output]).demand(chunk_tokens=8 * factor, convention="paper")
    assert more.prefill_tokens == factor * one.prefill_tokens
    assert more.attention_pairs - factor * prompt / 2 == factor**2 * (one.attention_pairs - prompt / 2)
    assert more.slot_iterations - more.decode_tokens == one.slot_iterations - one.decode_tokens


def test_a_million_rows_are_quick() -> None:
    """What does not depend on the chunk is computed once: 100 chunk sizes cost less than reading the rows."""
    rng = np.random.default_rng(5)
    prompts, outputs = rng.integers(1, 8000, 10**6), rng.integers(1, 1000, 10**6)
    start = time.perf_counter()
    law = Pairs(prompts, outputs)
    built = time.perf_counter() - start
    start = time.perf_counter()
    law.demand_by_chunk(np.arange(64, 6464, 64))
    swept = time.perf_counter() - start
    assert law.prompt_law.blocks.low.size <= 8000  # type: ignore[attr-defined]
    assert swept < 10 * max(built, 0.05)  # compared in one process: a pass over rows a chunk would be 100 times


@pytest.mark.parametrize(
    ("prompts", "outputs", "weights", "says"),
    [
        ([1, 2], [1], None, "2 prompts and 1 outputs"),
        ([1, 0, 3], [1, 1, 1], None, "prompts, row 1: 0"),
        ([1, 2], [1, 0], None, "outputs, row 1: 0"),
        ([1, 2], [1, -4], None, "outputs, row 1: -4"),
        ([1, 2.5], [1, 1], None, "prompts, row 1: 2.5"),
        ([1, np.nan], [1, 1], None, "prompts, row 1: nan"),
        ([1, np.inf], [1, 1], None, "prompts, row 1: inf"),
        ([], [], None, "at least one"),
        ([[1, 2]], [[1, 2]], None, "1-D"),
        (["a"], [1], None, "not a number"),
        ([1, 2], [1, 2], [1, -1], "weights, row 1"),
        ([1, 2], [1, 2], [0, 0], "all 0"),
        ([1, 2], [1, 2], [1], "expected 2"),
        ([2**60], [1], None, "prompts, row 0"),
    ],
)
def test_bad_pairs_name_the_row(prompts: object, outputs: object, weights: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        Pairs(prompts, outputs, weights)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"chunk_tokens": 0}, "chunk_tokens is 0"),
        ({"chunk_tokens": 8, "convention": "vllm"}, "convention"),
        ({"chunk_tokens": 8, "counting": "half"}, "counting"),
    ],
)
def test_bad_demand_arguments(arguments: dict[str, object], says: str) -> None:
    law = Pairs([5], [5])
    jaxtyping.config.update("jaxtyping_disable", True)  # as at a user's, where no annotation is checked
    try:
        with pytest.raises(InputError, match=says):
            law.demand(**arguments)  # type: ignore[arg-type]
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


# ------------------------------------------------------------------ the Gaussian copula


def double_sum(prompt: LengthLaw, output: LengthLaw, rho: float) -> float:
    """E[P O] = sum over j, k of P(P > j, O > k), by the bivariate normal distribution function: another road."""
    from scipy.special import ndtri
    from scipy.stats import multivariate_normal

    z = [ndtri(np.clip(1 - law.survival(np.arange(law.longest)), 1e-300, 1)) for law in (prompt, output)]
    normal = multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    total = 0.0
    for a, b in itertools.product(*z):
        # P(Z1 > a, Z2 > b) is the distribution function at (-a, -b)
        total += float(normal.cdf([min(-a, 40.0), min(-b, 40.0)]))
    return total


@pytest.mark.parametrize("rank", [-0.9, -0.3, 0.0, 0.45, 0.97])
@pytest.mark.parametrize(
    ("prompt", "output"),
    [
        (Uniform(3, 14), Geometric(mean=6, cap=15)),
        (Empirical([2, 2, 9, 12]), Uniform(1, 8)),
        (Fixed(7), Uniform(1, 8)),
    ],
)
def test_copula_product_against_a_double_sum(prompt: LengthLaw, output: LengthLaw, rank: float) -> None:
    law = GaussianCopula(prompt, output, rank)
    # scipy's bivariate normal is good to about 1e-8 absolute a term
    assert law.mean_product() == pytest.approx(double_sum(prompt, output, law.normal_correlation), rel=2e-7)


def test_copula_of_fine_uniforms_has_the_rank_correlation_as_its_own() -> None:
    for rank in (-0.8, 0.2, 0.6):
        law = GaussianCopula(Uniform(1, 20_000), Uniform(1, 20_000), rank)
        assert law.correlation() == pytest.approx(rank, abs=1e-7)  # up to the grid, 1/n^2


def test_copula_of_lognormals_has_the_closed_form() -> None:
    """For unrounded lognormals E[P O] = E[P] E[O] exp(rho s1 s2); rounding to tokens moves each by at most 1/2."""
    prompt, output = LogNormal(7, 0.5, high=60_000), LogNormal(5, 0.6, high=60_000)
    law = GaussianCopula(prompt, output, 0.5)
    closed = np.exp(7 + 0.125 + 5 + 0.18 + law.normal_correlation * 0.3)
    assert law.mean_product() == pytest.approx(closed, rel=1e-6)


def test_copula_without_correlation_is_independent() -> None:
    prompt, output = LogNormal(6, 1, high=8192), Geometric(mean=200, cap=1024)
    assert GaussianCopula(prompt, output, 0.0).demand(chunk_tokens=512) == Independent(prompt, output).demand(
        chunk_tokens=512
    )


def test_copula_refuses_what_it_cannot_prove() -> None:
    with pytest.raises(InputError, match="rank_correlation"):
        GaussianCopula(Uniform(1, 9), Uniform(1, 9), 1.0)
    with pytest.raises(InputError, match="prompt law of a copula reaches inf"):
        GaussianCopula(LogNormal(7, 0.7), Uniform(1, 9), 0.3)
