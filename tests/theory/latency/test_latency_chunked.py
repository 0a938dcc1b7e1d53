"""The chunked approximation: limits that are known, order of its parts, and a small reference simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tileq_theory import Fixed, Geometric, Independent, InputError, IterationTime, JointLaw, Uniform
from tileq_theory.latency.chunked import chunked_latency, chunked_saturation_per_s

TIME = IterationTime(launch_s=0.004, weight_floor_s=0.008, token_s=3e-5, kv_token_s=2e-8)
LAW = Independent(Uniform(100, 900), Geometric(100))


def test_light_load_is_the_time_of_a_request_alone() -> None:
    """A prompt of 700 in chunks of 512: two iterations, then decode steps of one token."""
    law = Independent(Fixed(700), Fixed(50))
    time = IterationTime(launch_s=0.01, token_s=1e-4)
    answer = chunked_latency(rate_per_s=1e-7, lengths=law, time=time, token_budget=512)
    assert answer.ttft_s == pytest.approx(float(time(512) + time(188)), rel=1e-5)
    assert answer.tbt_s == pytest.approx(float(time(1)), rel=1e-5)
    assert answer.e2e_s == pytest.approx(float(time(512) + time(188)) + 49 * float(time(1)), rel=1e-5)


def test_saturation_is_the_capacity_of_one_level() -> None:
    """Dai's closed form: budget / ((P + D) t(budget))."""
    law = Independent(Fixed(100), Fixed(100))
    time = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    most = chunked_saturation_per_s(law, time, token_budget=512, convention="paper")
    assert most == pytest.approx(16.7145, abs=5e-5)
    near = chunked_latency(rate_per_s=0.995 * most, lengths=law, time=time, token_budget=512, convention="paper")
    assert near.load > 0.95
    assert near.residents == pytest.approx(0.995 * most * 100 * 0.15316, rel=0.02)
    with pytest.raises(InputError, match=r"expected it below 16\.7145"):
        chunked_latency(rate_per_s=most, lengths=law, time=time, token_budget=512, convention="paper")


def test_latency_rises_with_load_and_shortest_prompt_first_helps_the_mean() -> None:
    most = chunked_saturation_per_s(LAW, TIME, token_budget=512)
    answers = [
        chunked_latency(rate_per_s=r * most, lengths=LAW, time=TIME, token_budget=512) for r in (0.2, 0.5, 0.8, 0.95)
    ]
    for name in ("ttft_s", "tbt_s", "e2e_s", "load", "residents"):
        values = [getattr(a, name) for a in answers]
        assert values == sorted(values)
    short = chunked_latency(rate_per_s=0.8 * most, lengths=LAW, time=TIME, token_budget=512, order="spf")
    assert short.ttft_s < answers[2].ttft_s
    assert answers[2].ttft_quantile_s(0.5) < answers[2].ttft_s < answers[2].ttft_quantile_s(0.99)
    assert float(answers[2].tbt_values_s @ answers[2].tbt_shares) == pytest.approx(answers[2].tbt_s)


def reference(law: JointLaw, rate: float, budget: int, count: int, seed: int) -> tuple[float, float]:
    """Decode-first chunks, first come first served, engine convention; returns mean TTFT and mean TBT."""
    rng = np.random.default_rng(seed)
    prompts, outputs = law.sample(rng, count)
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    now, i, queue, live, ttft, gaps = 0.0, 0, [], [], [], []
    while len(ttft) < count:
        while i < count and arrivals[i] <= now:
            queue.append([i, int(prompts[i])])
            i += 1
        if not queue and not live:
            now = float(arrivals[i])
            continue
        room, done = budget - len(live), []
        tokens = len(live)
        for entry in queue:
            take = min(entry[1], max(room, 0))
            entry[1] -= take
            room -= take
            tokens += take
            if entry[1] == 0:
                done.append(entry[0])
        step = float(TIME(tokens, 0.0, sum(c for _, c in live), 0))
        now += step
        gaps += [step] * len(live)
        live = [[left - 1, c + 1] for left, c in live if left > 1]
        queue = queue[len(done) :]
        ttft += [now - arrivals[j] for j in done]
        live += [[int(outputs[j]) - 1, int(prompts[j]) + 1] for j in done if outputs[j] > 1]
    return float(np.mean(ttft[count // 10 :])), float(np.mean(gaps))


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_against_a_reference_simulation(load: float) -> None:
    """Within 6 % plus the 99.9 % half width (four comparisons: family-wise false-alarm rate at most 0.4 %).

    6 % is the error that the module's docstring states for these loads; a formula without the waiting for the current
    iteration, or without the alignment to its end, is off by more.
    """
    rate = load * chunked_saturation_per_s(LAW, TIME, token_budget=512)
    answer = chunked_latency(rate_per_s=rate, lengths=LAW, time=TIME, token_budget=512)
    runs = np.array([reference(LAW, rate, 512, 500, seed) for seed in range(8)])
    half = stats.t.ppf(0.9995, 7) * runs.std(axis=0, ddof=1) / math.sqrt(8)
    error = np.abs(runs.mean(axis=0) - [answer.ttft_s, answer.tbt_s])
    assert (error < 0.06 * np.array([answer.ttft_s, answer.tbt_s]) + half).all()
    assert (half < 0.25 * np.array([answer.ttft_s, answer.tbt_s])).all()


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="max_num_seqs is 8"):
        chunked_latency(rate_per_s=5.0, lengths=LAW, time=TIME, token_budget=512, max_num_seqs=8)
    with pytest.raises(InputError, match="rate_per_s is 0"):
        chunked_latency(rate_per_s=0.0, lengths=LAW, time=TIME, token_budget=512)
    with pytest.raises(InputError, match="probability"):
        chunked_latency(rate_per_s=1.0, lengths=LAW, time=TIME, token_budget=512).tbt_quantile_s(1.0)
