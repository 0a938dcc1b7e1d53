"""Numbers recomputed from what a run leaves behind or from formulas, by other means than the library's own."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import t as student

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.queues import single_server
from tileq_engine.registry import policy
from tileq_engine.run import Run
from tileq_theory.iteration_time import IterationTime

# ------------------------------------------------------------------ SRPT, by Schrage and Miller's formula


def srpt_response(load: float, density: Callable[[float], float], largest: float) -> float:
    """E[T] of M/G/1 SRPT, rate `load` (mean service 1): waiting + residence, integrated over sizes (1966)."""

    def moment(x: float, power: int) -> float:
        return float(quad(lambda u: u**power * density(u), 0, x, limit=200)[0])

    def beyond(x: float) -> float:
        return float(quad(density, x, largest, limit=200)[0])

    grid = np.linspace(0, largest, 4001)
    rho = np.array([load * moment(x, 1) for x in grid[::40]])
    rho_at = np.interp(grid, grid[::40], rho)
    residence = np.concatenate([[0], np.cumsum((1 / (1 - rho_at[1:]) + 1 / (1 - rho_at[:-1])) / 2 * np.diff(grid))])
    total = 0.0
    for x, part, stay in zip(grid[::20], rho_at[::20], residence[::20], strict=True):
        wait = load * (moment(x, 2) + x * x * beyond(x)) / 2 / (1 - part) ** 2
        weight = 0.5 if x in (grid[0], grid[-1]) else 1.0
        total += weight * density(x) * (wait + stay) * (grid[20] - grid[0])
    return total


LAWS: dict[str, tuple[Callable[[float], float], float, Callable[[Any, int], Any]]] = {
    "exponential": (lambda x: math.exp(-x), 25.0, lambda g, n: g.exponential(1.0, n)),
    "uniform": (lambda x: 0.5, 2.0, lambda g, n: g.uniform(0, 2, n)),
    "erlang 2": (lambda x: 4 * x * math.exp(-2 * x), 15.0, lambda g, n: g.gamma(2.0, 0.5, n)),
}


def test_the_formula_is_the_printed_one() -> None:
    # M&S, Exp(1): 1.4254 at .5, 1.8746 at .7; the sum over 200 sizes is good to three digits
    density, largest, _ = LAWS["exponential"]
    assert srpt_response(0.5, density, largest) == pytest.approx(1.4254, rel=2e-3)
    assert srpt_response(0.7, density, largest) == pytest.approx(1.8746, rel=2e-3)


@pytest.mark.parametrize("law", ["uniform", "erlang 2"])
def test_srpt_of_other_laws(law: str) -> None:
    """20 replications of 6000; level 99.9 % each: two false alarms in 2000 pairs."""
    density, largest, draw = LAWS[law]
    expected, load, means = srpt_response(0.7, density, largest), 0.7, []
    for seed in range(20):
        g = np.random.default_rng([3, seed])
        arrival, service = np.cumsum(g.exponential(1 / load, 6000)), draw(g, 6000)
        run = single_server(arrival, service, discipline="srpt", tick_s=1e-3).run()
        means.append(float((run.finish_ps - run.arrival_ps)[300:].mean()) * 1e-12)
    half = student.ppf(0.9995, 19) * statistics.stdev(means) / math.sqrt(20)
    assert half < 0.06 * expected
    assert abs(statistics.fmean(means) - expected) <= half + 2e-3 * expected


def test_srpt_counts_the_token_that_a_last_chunk_brings() -> None:
    """Engine convention: a prompt of 4 with one output token is 4 tokens of work, as a decode with 4 left: the earlier.

    B (5 + 6) has 4 tokens left when A (4 + 1) arrives: 4 against 4, and B came first.
    """
    requests = Requests.from_arrays(arrival_s=[0.0, 6.5], prompt_tokens=[5, 4], output_tokens=[6, 1])
    config = EngineConfig(token_budget=1, trace_limit=100)
    run = simulate(requests, policy("srpt"), IterationTime.constant(1.0), config, mode="python")
    # B: 5 chunks end at 5 (first token), decodes end at 6, 7: 3 left at 7 < 4, so it ends first at 10
    assert (run.finish_ps // 10**12).tolist() == [10, 14]
    later = Requests.from_arrays(arrival_s=[0.0, 5.5], prompt_tokens=[5, 4], output_tokens=[6, 1])
    run = simulate(later, policy("srpt"), IterationTime.constant(1.0), config, mode="python")
    # at 6 B has 4 left and A needs 4: a tie, which the earlier wins
    assert (run.finish_ps // 10**12).tolist() == [10, 14]
    shorter = Requests.from_arrays(arrival_s=[0.0, 5.5], prompt_tokens=[5, 3], output_tokens=[6, 1])
    run = simulate(shorter, policy("srpt"), IterationTime.constant(1.0), config, mode="python")
    # 3 against 4: A goes first (with the token counted twice it would tie and wait)
    assert (run.finish_ps // 10**12).tolist() == [13, 9]


# ------------------------------------------------------------------ latencies from the export and the trace


def quantile(values: list[Fraction], p: str) -> Fraction:
    """The smallest value v with share of values <= v at least p."""
    ordered, n = sorted(values), len(values)
    return next(v for k, v in enumerate(ordered, 1) if Fraction(k, n) >= Fraction(p))


@pytest.mark.parametrize("convention", ["engine", "paper"])
def test_latencies_recomputed_from_the_export(convention: Any, tmp_path: Path) -> None:
    g = np.random.default_rng(11)
    n = 400
    requests = Requests.from_arrays(
        arrival_s=np.cumsum(g.exponential(0.01, n)),
        prompt_tokens=g.integers(1, 300, n),
        output_tokens=g.integers(1, 60, n),
    )
    time = IterationTime(launch_s=0.004, token_s=2e-5, kv_token_s=1e-7, sequence_s=1e-5)
    config = EngineConfig(
        token_budget=512, max_num_seqs=16, kv_tokens=1500, convention=convention, trace_limit=10**6, gap_mode="exact"
    )
    raw = simulate(requests, policy("vllm_v0"), time, config)
    assert raw.counters["preemptions"] > 0
    run = Run.load(Run.of(raw).save(tmp_path / "run.npz"))
    rows = list(csv.DictReader(run.to_csv(tmp_path / "run.csv").open()))
    assert len(rows) == n and {row["status"] for row in rows} == {"finished"}
    ps = [{k: int(row[k]) for k in ("arrival_ps", "first_token_ps", "finish_ps", "output_tokens")} for row in rows]
    ttft = [Fraction(r["first_token_ps"] - r["arrival_ps"], 10**12) for r in ps]
    e2e = [Fraction(r["finish_ps"] - r["arrival_ps"], 10**12) for r in ps]
    many = [r for r in ps if r["output_tokens"] > 1]
    tpot = [Fraction(r["finish_ps"] - r["first_token_ps"], 10**12 * (r["output_tokens"] - 1)) for r in many]
    metrics = run.metrics("none").to_dict()
    for name, values in (("ttft_s", ttft), ("e2e_s", e2e), ("tpot_s", tpot), ("tbt_s", token_gaps(raw))):
        told = metrics[name]
        assert told["count"] == len(values) and told["unfinished"] == 0
        assert told["mean"] == pytest.approx(float(sum(values) / len(values)), rel=1e-12)
        assert told["max"] == pytest.approx(float(max(values)), rel=1e-12)
        for label, p in (("p50", "0.5"), ("p90", "0.9"), ("p99", "0.99")):
            assert told[label] == pytest.approx(float(quantile(values, p)), rel=1e-12), (name, label)


def token_gaps(raw: Any) -> list[Fraction]:
    """Every gap between tokens, from the trace: a decode brings one and, under the engine convention, a prefill.

    vLLM v0 prefills whole prompts, so that every prefill in the trace is a last chunk.
    """
    t, engine = raw.trace, raw.config.convention == "engine"
    last: dict[int, int] = {}
    out, done = [], dict.fromkeys(range(len(raw.requests)), 0)
    columns = (t.start_ps, t.duration_ps, t.request, t.decode)
    for start, took, i, decode in zip(*(v.tolist() for v in columns), strict=True):
        if decode or engine:
            if i in last:
                out.append(Fraction(start + took - last[i], 10**12))
            last[i] = start + took
            done[i] += 1
    assert list(done.values()) == raw.requests.output_tokens.tolist()
    return out


@pytest.mark.parametrize("name", ["sarathi", "vllm_v1", "slai"])
def test_the_histogram_keeps_its_bound(name: str) -> None:
    """Every quantile of the histogram is within 1/257 of the exact one; mean, least and largest are exact."""
    g = np.random.default_rng(12)
    n = 800
    requests = Requests.from_arrays(
        arrival_s=np.cumsum(g.exponential(0.02, n)),
        prompt_tokens=g.integers(1, 500, n),
        output_tokens=g.geometric(1 / 50, n),
        paying=g.random(n) < 0.2,
    )
    time = IterationTime(launch_s=0.004, token_s=2e-5, kv_token_s=1e-7, pair_s=3e-10)
    config = EngineConfig(token_budget=128, max_num_seqs=64, kv_tokens=12_000)
    exact, binned = (
        Run.of(simulate(requests, policy(name), time, config.with_(gap_mode=mode))) for mode in ("exact", "histogram")
    )
    for tier in (0, 1, None):
        one, other = exact.merged_gaps(tier=tier), binned.merged_gaps(tier=tier)
        assert one.exact and not other.exact and one.count == other.count
        assert (one.mean_ps, one.min_ps, one.max_ps) == (other.mean_ps, other.min_ps, other.max_ps)
        worst = 0.0
        for p in np.linspace(0, 1, 2001):
            truth = one.quantile_ps(float(p))
            worst = max(worst, abs(other.quantile_ps(float(p)) - truth) / truth)
        assert 1e-4 < worst <= 1 / 257  # it does round, and by no more than it says
