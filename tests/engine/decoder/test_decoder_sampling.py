"""Sampling: exact sets, the right probabilities, and independence of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

NEEDS = ("transformers",)
FALSE_ALARM = 1e-6


def params(**fields: Any) -> Any:
    from tileq_engine.decoder import SamplingParams

    return SamplingParams(**fields)


def draws(logits: list[float], count: int, **fields: Any) -> np.ndarray:
    """Return how often each token is picked at positions 0 .. count - 1 of one stream."""
    import torch

    from tileq_engine.decoder import sample

    rows = torch.tensor(logits).expand(count, -1)
    picked = sample(rows, [params(**fields)] * count, range(count)).numpy()
    return np.bincount(picked, minlength=len(logits))


def test_greedy_takes_the_largest_and_the_first_on_ties() -> None:
    import torch

    from tileq_engine.decoder import sample

    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 3.0]])
    assert sample(logits, [params(), params(temperature=5.0, top_k=1)], [0, 9]).tolist() == [1, 0]


def test_frequencies_are_the_softmax_at_the_temperature() -> None:
    """Chi-square; false alarm 1e-6."""
    logits, temperature, count = [0.0, 1.0, -1.0, 2.5, 0.3], 1.7, 20_000
    weights = np.exp(np.array(logits) / temperature)
    seen = draws(logits, count, temperature=temperature, seed=12)
    assert stats.chisquare(seen, count * weights / weights.sum()).pvalue > FALSE_ALARM


@given(
    logits=st.lists(st.integers(-3000, 3000), min_size=2, max_size=12, unique=True),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1.0),
)
@settings(max_examples=25)
def test_kept_tokens_are_those_of_transformers_warpers(logits: list[int], top_k: int, top_p: float) -> None:
    """Top-k, then top-p of what is left; frequencies by chi-square over the kept tokens (false alarm 1e-6 in all)."""
    import torch
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    row = torch.tensor([[x / 1000 for x in logits]])
    kept = row if top_k == 0 else TopKLogitsWarper(min(top_k, len(logits)))(None, row)
    kept = TopPLogitsWarper(top_p)(None, kept) if top_p < 1 else kept
    share = torch.softmax(kept.to(torch.float64), dim=-1)[0].numpy()
    count = 1500
    seen = draws(row[0].tolist(), count, temperature=1.0, top_k=top_k, top_p=top_p, seed=5)
    assert not seen[share == 0].any()
    common = share * count >= 5
    if common.sum() > 1:
        expected = share[common] * seen[common].sum() / share[common].sum()
        assert stats.chisquare(seen[common], expected).pvalue > FALSE_ALARM / 25


@given(seed=st.integers(-(2**70), 2**70), position=st.integers(0, 2**40))
@settings(max_examples=50)
def test_a_draw_belongs_to_seed_and_position_alone(seed: int, position: int) -> None:
    import torch

    from tileq_engine.decoder import sample

    rng = np.random.default_rng(abs(seed) % 2**32)
    rows = torch.from_numpy(rng.standard_normal((5, 40)).astype(np.float32))
    mine = params(temperature=0.8, top_p=0.9, seed=seed)
    alone = int(sample(rows[2:3], [mine], [position]))
    others = [params(), params(temperature=2.0, seed=1), mine, params(top_k=3, temperature=1.0), params()]
    assert int(sample(rows, others, [0, 5, position, 7, 8])[2]) == alone


def test_streams_are_uniform_and_unlike_each_other() -> None:
    """Kolmogorov-Smirnov of one stream, correlation of two neighbours; false alarm 1e-6 each."""
    from tileq_engine.decoder.sampling import uniform

    one, two = (np.array([uniform(seed, at) for at in range(5000)]) for seed in (7, 8))
    assert stats.kstest(one, "uniform").pvalue > FALSE_ALARM
    assert stats.pearsonr(one, two).pvalue > FALSE_ALARM
    assert stats.pearsonr(one[1:], one[:-1]).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"temperature": -1.0}, "temperature"), ({"top_k": -1}, "top_k"), ({"top_p": 0.0}, "top_p")],
)
def test_bad_parameters_are_named(fields: dict[str, Any], named: str) -> None:
    from tileq_theory.errors import InputError

    with pytest.raises(InputError, match=named):
        params(**fields)
