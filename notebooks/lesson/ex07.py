"""The exercises of notebook 07: the published headline."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3"]

from functools import cache
from typing import Any

from lesson.answers import Verdict, about, exactly
from paper_repro.slai.serving import LIMITS_S, SARATHI, SLAI, serve
from tileq_theory.closed_forms import closed_form
from tileq_theory.iteration_time import IterationTime

RATE, HORIZON_S, SEED, REPLICATION = 1.5, 600.0, 5, 0
LONG_PROMPT = 128 * 8.5  # mean of 128 U{1..16}


def _rad(prompt: float) -> float:
    """Return lambda* of the reference machine from the time of a tile and the tokens of a mean request."""
    time = IterationTime.rad(t_lin_s=4e-3, t_nl_s=5e-6, tile_tokens=128)
    output = closed_form("capped_exponential_mean").evaluate(mean_tokens=200, cap_tokens=512)
    return 128 / float(time.tau_s(128)) / (prompt + float(output))


@cache
def _change() -> float:
    """Return SLAI's change of the median TTFT against Sarathi-Serve, percent."""
    slai, sarathi = (serve(p, RATE, HORIZON_S, {}, SEED, REPLICATION).ttft_p50_s for p in (SLAI, SARATHI))
    return 100 * (slai / sarathi - 1)


@cache
def _first_tier() -> str:
    """Return the tier whose p99 TBT leaves its limit first as SLAI's rate grows."""
    rate = 0.5
    while True:
        found = serve(SLAI, rate, HORIZON_S, {}, SEED, REPLICATION)
        over = {tier: found.tbt_p99_s[tier] / limit for tier, limit in LIMITS_S.items()}
        if max(over.values()) > 1:
            return max(over, key=lambda tier: over[tier])
        rate += 0.1


def exercise_1(answer: Any) -> Verdict:
    """lambda* of RAD's reference machine for prompts of 128 U{1..16} tokens, requests per second."""
    return about(
        answer,
        lambda: _rad(LONG_PROMPT),
        rel=2e-3,
        why="only the mean number of tokens counts, as long as nothing but time binds.",
        hint="the mean of 128 U{1..16} is 128 x 8.5; the rest as before.",
        traps={"that is half of it: outputs did not double.": lambda: _rad(576.0) / 2},
    )


def exercise_2(answer: Any) -> Verdict:
    """SLAI's change of the median TTFT at 1.5 requests/s, 600 s, seed 5, replication 0, percent."""
    return about(
        answer,
        _change,
        rel=0.02,
        why="below SLAI's own capacity the drop is smaller than the headline's: it grows with the rate.",
        hint="100 * (SLAI / Sarathi - 1) of serve(...).ttft_p50_s, with its sign.",
        traps={"with its sign: TTFT falls.": lambda: -_change(), "in percent.": lambda: _change() / 100},
    )


def exercise_3(answer: Any) -> Verdict:
    """The tier that breaks its TBT limit first as the rate grows."""
    return exactly(
        answer,
        _first_tier,
        why="its limit is hardly longer than a full batch, so it has nothing to spend; the other tier's never moves.",
        hint="serve(SLAI, rate, 600.0, {}, 5, 0).tbt_p99_s against LIMITS_S, for rates from 0.5 upwards.",
    )
