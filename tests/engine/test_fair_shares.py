"""Weighted fair shares: the virtual token counter under overload, idle tenants, quotas, and its bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, Requests, Run, simulate
from tileq_engine.metrics_tenants import jain_index, service_series, tenant_shares
from tileq_engine.registry import policy
from tileq_engine.tenants import Tenants
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.004, tile_s=0.002, tile_tokens=16, kv_token_s=1e-6)
CONFIG = EngineConfig(token_budget=64, max_num_seqs=16)


def overload(seed: int, n: int = 4000, tenants: int = 2, **lengths: tuple[int, int]) -> Requests:
    """Everybody's requests are there from the first instant, in random order: all wait until one has no more."""
    g = np.random.default_rng(seed)
    low, high = lengths.get("prompt", (1, 60)), lengths.get("output", (1, 40))
    return Requests.from_arrays(
        arrival_ps=np.zeros(n, dtype=int),
        prompt_tokens=g.integers(*low, n),
        output_tokens=g.integers(*high, n),
        tenant=g.integers(0, tenants, n),
    )


def shared(
    requests: Requests, tenants: Tenants, name: str = "vtc", config: EngineConfig = CONFIG, **params: Any
) -> Run:
    """Run until the first tenant has nobody waiting any more."""
    raw = simulate(requests, policy(name, **params), TIME, config.with_(tenants=tenants))
    return Run.of(raw)


@pytest.mark.parametrize("base", ["sarathi", "vllm_v1", "vllm_v0"])
@pytest.mark.parametrize("weights", [(3.0, 1.0), (1.0, 1.0), (0.75, 0.25)])
def test_weights_are_shares_within_one_percent(base: str, weights: tuple[float, float]) -> None:
    """Two tenants at 3:1 under overload get 3:1 tokens within 1 %; what the weights' unit is does not matter."""
    fair = Tenants(("gold", "free"), weights, prompt_price=1.0, output_price=1.0)
    run = shared(overload(1), fair, base=base)
    got = tenant_shares(run)
    assert got.contended_s > 0.5 * run.info.end_ps / 1e12 / max(weights) * min(weights)
    assert got.got[0] / got.got[1] == pytest.approx(weights[0] / weights[1], rel=0.01)
    assert got.error is not None and got.error < 0.01
    assert got.jain is not None and got.jain > 0.999


def test_whoever_is_away_has_no_fair_part() -> None:
    """A third tenant of the largest weight that never asks: the two others are judged by their own 3:1."""
    fair = Tenants(("gold", "free", "away"), (3.0, 1.0, 40.0))
    got = tenant_shares(shared(overload(1, 2000), fair))
    assert got.fair[2] == got.got[2] == 0
    assert got.fair[0] / got.fair[1] == pytest.approx(3.0)
    assert got.error is not None and got.error < 0.01
    assert got.jain is not None and got.jain > 0.999


def test_first_come_first_served_knows_no_weights() -> None:
    """The same requests under FCFS: equal tenants, and so far from 3:1; the measure tells."""
    run = shared(overload(1), Tenants(("gold", "free"), (3.0, 1.0)), "sarathi")
    got = tenant_shares(run)
    assert got.got[0] / got.got[1] == pytest.approx(1.0, rel=0.1)
    assert got.error is not None and got.error > 0.2


def test_prices_say_what_service_is() -> None:
    """With outputs ten times as dear as prompts, a tenant of long prompts gets many more tokens for the same money."""
    g = np.random.default_rng(2)
    who = g.integers(0, 2, 4000)
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(4000, dtype=int),
        prompt_tokens=np.where(who == 0, 60, 10),
        output_tokens=np.where(who == 0, 5, 30),
        tenant=who,
    )
    dear = Tenants(("reads", "writes"), prompt_price=1.0, output_price=10.0)
    got = tenant_shares(shared(asked, dear))
    assert got.got[0] / got.got[1] == pytest.approx(1.0, rel=0.02)
    run = shared(asked, dear)
    assert run.tenants is not None
    both = (run.tenants.waiting > 0).all(axis=1)
    tokens = (run.tenants.prefilled_tokens + run.tenants.delivered_tokens)[both][-1]
    assert tokens[0] > 2 * tokens[1]  # 65 tokens cost 110, 40 cost 310


def periods(rest: float) -> tuple[Requests, float, float]:
    """Tenant 0 always waits; tenant 1 has requests in the first and the last third only."""
    g = np.random.default_rng(5)
    n, third = 9000, rest
    who = np.concatenate([np.zeros(6000, dtype=int), np.ones(3000, dtype=int)])
    moment = np.concatenate([np.zeros(6000), np.where(np.arange(3000) < 1500, 0.0, 2 * third)])
    order = np.argsort(moment, kind="stable")
    asked = Requests.from_arrays(
        arrival_s=moment[order],
        prompt_tokens=g.integers(1, 60, n),
        output_tokens=g.integers(1, 40, n),
        tenant=who[order],
    )
    return asked, third, 2 * third


def between(run: Run, begin_s: float, end_s: float) -> np.ndarray:
    """Return what each tenant got between two moments."""
    assert run.tenants is not None
    start, had = run.samples["start_ps"] / 1e12, service_series(run.tenants)
    return np.array([np.diff(np.interp([begin_s, end_s], start, column))[0] for column in had.T])


def test_an_idle_share_is_lent_and_returned_without_credit() -> None:
    """While a tenant is away the other gets everything; back, it gets its share again and not a token for the time."""
    asked, _, back = periods(30.0)
    run = shared(asked, Tenants(("stays", "goes"), (1.0, 3.0)), "vtc", CONFIG)
    assert run.tenants is not None
    start, waiting = run.samples["start_ps"] / 1e12, run.tenants.waiting
    left = float(start[np.flatnonzero((waiting[:, 1] > 0) & (start < back))[-1]])
    assert left < 0.5 * back  # its first requests are served well before the others come
    first = between(run, 0.0, left)
    assert first[1] / first[0] == pytest.approx(3.0, rel=0.02)
    alone = between(run, left + 5.0, back - 1.0)  # samples lie some tenths of a second apart
    assert alone[1] == 0 and alone[0] > 0  # lent
    again = between(run, back, back + 20.0)
    assert again[1] / again[0] == pytest.approx(3.0, rel=0.05)  # returned, at once
    # with credit for the time away it would have all until it had made up for 3 x what the other got meanwhile
    assert again[0] > 0.2 * again.sum()
    counter = run.tenants.counter
    at = int(np.searchsorted(start, back)) + 1
    assert abs(int(counter[at, 1] - counter[at, 0])) < 0.01 * int(counter[at, 0])  # lifted


def test_a_tenant_of_weight_zero_gets_what_nobody_else_wants() -> None:
    g = np.random.default_rng(3)
    n = 600
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(n, dtype=int), prompt_tokens=20, output_tokens=10, tenant=g.integers(0, 3, n)
    )
    run = simulate(asked, policy("vtc"), TIME, CONFIG.with_(tenants=Tenants(("a", "b", "spare"), (2.0, 1.0, 0.0))))
    spare = asked.tenant == 2
    assert run.admit_ps[spare].min() >= run.admit_ps[~spare].max()
    assert run.counters["finished"] == n


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=4),
    base=st.sampled_from(["sarathi", "vllm_v1"]),
)
def test_the_bound_of_the_counters(seed: int, weights: list[float], base: str) -> None:
    """Between any two samples tenants that wait all the time differ in service over weight by a constant at most.

    A counter is service over weight but for prompts charged before they are computed, and counters of tenants that
    wait are never further apart than U = max over tenants of what one admission adds plus what all residents' outputs
    can add before the next admission (Sheng et al., Lemma 4.3, with weights).
    """
    tenants = Tenants(tuple(f"t{i}" for i in range(len(weights))), tuple(weights))
    asked = overload(seed, 400, len(weights))
    config = EngineConfig(token_budget=48, max_num_seqs=6, sample_limit=100_000, tenants=tenants)
    run = simulate(asked, policy("vtc", base=base), TIME, config)
    found = run.tenants
    assert found is not None
    longest, most_out = int(asked.prompt_tokens.max()), int(asked.output_tokens.max())
    least = min(weights)
    bound = (1.0 * longest + 2.0 * 6 * most_out) / least
    slack = bound + 1.0 * longest * 6 / least  # charged and not computed yet
    both = (found.waiting > 0).all(axis=1)
    per_weight = (found.prefilled_tokens + 2.0 * found.delivered_tokens)[both] / np.asarray(tenants.weights)
    if len(per_weight) < 2:
        return
    apart = per_weight.max(axis=1) - per_weight.min(axis=1)
    assert float(apart.max()) <= bound + slack


def test_service_adds_up_to_what_was_computed() -> None:
    """Prompt tokens of finished requests once, whatever was computed again; output tokens all."""
    asked = overload(7, 300)
    tight = EngineConfig(token_budget=48, max_num_seqs=12, kv_tokens=320, tenants=Tenants(("a", "b")), check=True)
    run = simulate(asked, policy("vtc", base="vllm_v1"), TIME, tight)
    assert run.counters["preemptions"] > 0 and run.tenants is not None
    done = run.finish_ps >= 0
    for t in range(2):
        mine = done & (asked.tenant == t)
        assert run.tenants.end_prefilled_tokens[t] == asked.prompt_tokens[mine].sum()
        assert run.tenants.end_delivered_tokens[t] == asked.output_tokens[mine].sum()


def test_starvation_is_the_longest_time_without_a_token() -> None:
    """One slot: tenant 1 comes at .1 s behind a request of 50 tokens and runs first when that has ended."""
    asked = Requests.from_arrays(arrival_s=[0.0, 0.1], prompt_tokens=8, output_tokens=[50, 2], tenant=[0, 1])
    slow = IterationTime.constant(0.01)
    config = EngineConfig(max_num_seqs=1, tenants=Tenants(("first", "second")))
    run = simulate(asked, "sarathi", slow, config)
    assert run.tenants is not None
    assert run.tenants.starved_ps.tolist() == [0, 400_000_000_000]
    assert run.tenants.starved_from_ps[1] == 100_000_000_000


def test_a_second_request_does_not_end_starvation() -> None:
    """As above, with another of tenant 1 at .3 s: its first still counts from .1 s on."""
    asked = Requests.from_arrays(arrival_s=[0.0, 0.1, 0.3], prompt_tokens=8, output_tokens=[50, 2, 2], tenant=[0, 1, 1])
    config = EngineConfig(max_num_seqs=1, tenants=Tenants(("first", "second")))
    run = simulate(asked, "sarathi", IterationTime.constant(0.01), config)
    assert run.tenants is not None
    assert run.tenants.starved_ps.tolist() == [0, 400_000_000_000]


def test_jain() -> None:
    assert jain_index(np.array([1.0, 1.0, 1.0, 1.0])) == 1.0
    assert jain_index(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain_index(np.zeros(2)) is None


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"weights": (1.0, -2.0)}, "weight of tenant 'b' is -2.0; expected 0 or more"),
        ({"weights": (0.0, 0.0)}, "the weights of tenants a, b are all 0"),
        ({"weights": (1.0,)}, "weights has 1 values for 2 tenants"),
        ({"weights": (float("nan"), 1.0)}, "weight of tenant 'a'"),
        ({"quotas": (0, 1)}, "quota of tenant 'a'"),
        ({"deadlines_s": (0.0, 1.0)}, "deadline of tenant 'a'"),
        ({"priorities": (2**31, 1)}, "priority of tenant 'a' is 2147483648"),
        ({"prompt_price": 0.0, "output_price": 0.0}, "both 0"),
    ],
)
def test_bad_tenants_get_one_line(settings_: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        Tenants(("a", "b"), **settings_)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_requests_of_tenants_that_are_not_there() -> None:
    with pytest.raises(InputError, match="requests name tenant 2, but 2 tenants are given"):
        simulate(overload(1, 50, 3), policy("vtc"), TIME, CONFIG.with_(tenants=Tenants(("a", "b"))))
    with pytest.raises(InputError, match="too far apart"):
        simulate(overload(1, 50), policy("vtc"), TIME, CONFIG.with_(tenants=Tenants(("a", "b"), (1.0, 1e-12))))


def test_quotas_of_their_own() -> None:
    """A quota of 1 beside none: the one has never more than one resident, the other as many as there are slots."""
    tenants = Tenants(("bound", "free"), quotas=(1, None))
    run = simulate(overload(4, 300), policy("sarathi"), TIME, CONFIG.with_(tenants=tenants, check=True))
    most = []
    for t in range(2):
        mine = run.requests.tenant == t
        moments = np.concatenate([run.admit_ps[mine], run.finish_ps[mine]])
        steps = np.concatenate([np.ones(mine.sum()), -np.ones(mine.sum())])
        most.append(int(np.cumsum(steps[np.lexsort((steps, moments))]).max()))
    assert most[0] == 1 and most[1] >= 15
