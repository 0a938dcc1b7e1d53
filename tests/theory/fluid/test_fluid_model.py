"""The fluid model: rest, drain, overload, capacity; against closed forms and the exact chain."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import Demand, Fixed, Geometric, Independent, InputError, IterationTime
from tileq_theory import chain as exact_chain
from tileq_theory.closed_forms import closed_form
from tileq_theory.fluid import (
    DecodeFirst,
    ExclusiveThreshold,
    FluidPolicy,
    FluidState,
    FluidSystem,
    PrefillFirst,
    PrefillsMixed,
    Rad,
    drain_time_s,
    equilibrium,
    field_at,
    fluid_capacity_per_s,
    fluid_path,
    overload_slope_tokens_per_s,
    plot_phase_plane,
    work_conserving_drain_s,
)

DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
POLICIES: list[FluidPolicy] = [DecodeFirst(), PrefillsMixed(), PrefillFirst(), Rad(128), ExclusiveThreshold(16)]


def demand(prompt: int = 100, steps: int = 50) -> Demand:
    return Independent(Fixed(prompt), Geometric(mean=steps + 1)).demand(chunk_tokens=10**6)


def node(rate: float = 20.0, **changes: object) -> FluidSystem:
    time = IterationTime(launch_s=0.01, tile_s=0.004, tile_tokens=128, token_s=1e-5, kv_token_s=1e-8)
    system = FluidSystem(time, demand(), rate_per_s=rate, token_budget=512, residents=128, kv_capacity_tokens=4e4)
    return replace(system, **changes)  # type: ignore[arg-type]


@cache
def capacity(policy: FluidPolicy) -> float:
    return fluid_capacity_per_s(node(), policy)


@pytest.mark.parametrize(("over", "tokens_per_ms"), [(1.1, 0.3343), (1.2, 0.6686)])
def test_the_overload_slope_of_dais_constants(over: float, tokens_per_ms: float) -> None:
    rate = over * 512 / 0.15316 / 200
    slope = overload_slope_tokens_per_s(DAI, rate_per_s=rate, prefill_tokens=100, decode_tokens=100, token_budget=512)
    assert round(slope / 1000, 4) == tokens_per_ms
    # the path of either mixed policy has it once batches are full
    system = FluidSystem(DAI, demand(100, 100), rate_per_s=rate, token_budget=512, residents=512)
    for policy in (DecodeFirst(), PrefillsMixed()):
        path = fluid_path(system, policy, start=FluidState(5e4), horizon_s=100)
        assert math.isclose(path.slope_tokens_per_s(), slope, rel_tol=1e-6)


def test_full_batches_drain_at_the_closed_form_rate() -> None:
    rate = 0.5 * 512 / 0.15316 / 200
    settings_ = {"rate_per_s": rate, "prefill_tokens": 100, "decode_tokens": 100, "token_budget": 512}
    system = FluidSystem(DAI, demand(100, 100), rate_per_s=rate, token_budget=512, residents=512)
    start = FluidState(2e5, 256, 256 * 200)
    path = fluid_path(system, DecodeFirst(), start=start, horizon_s=300, until_drained=True)
    cleared = path.backlog_tokens[0] - path.backlog_tokens[-1]
    expected = work_conserving_drain_s(DAI, backlog_tokens=float(cleared), **settings_)
    assert math.isclose(path.drained_s, expected, rel_tol=1e-5)
    over = settings_ | {"rate_per_s": 40.0}
    assert work_conserving_drain_s(DAI, backlog_tokens=1.0, **over) == math.inf


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("start", [FluidState(), FluidState(2e4), FluidState(500.0, 120.0, 2e4)])
def test_paths_end_at_rest_under_half_load(policy: FluidPolicy, start: FluidState) -> None:
    system = node(0.5 * capacity(policy))
    rest = equilibrium(system, policy)
    assert rest is not None
    path = fluid_path(system, policy, start=start, horizon_s=25)
    assert path.waiting_tokens[-1] == 0
    assert math.isclose(path.decoding[-1], rest.decoding, rel_tol=1e-3)
    assert math.isclose(path.kv_tokens[-1], rest.kv_tokens, rel_tol=1e-3)
    assert math.isfinite(drain_time_s(system, policy, FluidState(2e4), horizon_s=60))


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.saturated_rate_per_s(node()) is None])
def test_rest_obeys_littles_law_and_stands_still(policy: FluidPolicy) -> None:
    system = node(0.7 * capacity(policy))
    rest = equilibrium(system, policy)
    assert rest is not None
    cycle = policy.flow(system, rest).cycle_s
    assert math.isclose(rest.decoding, system.rate_per_s * 50 * cycle, rel_tol=1e-9)
    assert math.isclose(rest.kv_tokens / rest.decoding, 151, rel_tol=1e-9)  # geometric: P + E[age], and its own token
    assert np.allclose(field_at(system, policy, rest), 0, atol=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
def test_beyond_capacity_there_is_no_rest_and_the_queue_grows(policy: FluidPolicy) -> None:
    system = node(1.3 * capacity(policy))
    assert equilibrium(system, policy) is None
    path = fluid_path(system, policy, start=FluidState(1e4), horizon_s=8)
    assert path.slope_tokens_per_s() > 0 and path.drained_s == math.inf


def test_rads_fluid_capacity_is_its_closed_form() -> None:
    time = IterationTime.rad(t_lin_s=0.004, t_nl_s=5e-6, tile_tokens=128)
    requests = Demand(576, 185.00078, 185.00078 * 700, 576 * 577 / 2, 2e5, 190)
    system = FluidSystem(time, requests, rate_per_s=1.0, token_budget=128, residents=128)
    assert math.isclose(fluid_capacity_per_s(system, Rad(128)), 36.2499, abs_tol=5e-5)
    chunked = closed_form("rad_capacity_chunks")
    assert chunked.name == "rad_capacity_chunks"
    six = 1 / (6 * 0.00464 + 185.00078 * 0.00464 / 128)
    assert math.isclose(fluid_capacity_per_s(system, Rad(128, tiles=6.0)), six, rel_tol=1e-9)


def test_the_best_threshold_is_thetas_root_in_the_limit() -> None:
    # arXiv 2606.00516: p0 = 1/200, equal iteration times: theta0 = .0936781
    request = Independent(Fixed(1), Geometric(mean=201)).demand(chunk_tokens=100)
    system = FluidSystem(IterationTime.constant(0.01), request, rate_per_s=1.0, token_budget=10**6, residents=10_000)
    rates = {k: ExclusiveThreshold(k).saturated_rate_per_s(system) or 0.0 for k in range(925, 951, 2)}
    assert abs(max(rates, key=lambda k: rates[k]) / 10_000 - 0.0936781) < 3e-4


@pytest.mark.parametrize("cap", [2, 6])
def test_mixed_capacity_is_the_exact_chains_when_time_is_affine(cap: int) -> None:
    # the chain's saturated means enter an affine time only by their means, so fluid and chain agree exactly
    time = IterationTime(launch_s=0.01, token_s=1e-5, sequence_s=1e-4)
    system = FluidSystem(time, demand(), rate_per_s=1.0, token_budget=10**6, residents=cap)
    chain = exact_chain.ChainSystem(
        time=time, rule=exact_chain.DecodeFirst(), residents=cap, prompt_tokens=100, outputs=Geometric(mean=51)
    )
    assert math.isclose(fluid_capacity_per_s(system, DecodeFirst()), exact_chain.chain_capacity(chain), rel_tol=1e-8)


@pytest.mark.parametrize(("policy", "rule"), [(PrefillFirst(), exact_chain.PrefillFirst()), (Rad(128, 1.0), None)])
def test_exclusive_capacity_is_near_the_exact_chains(policy: FluidPolicy, rule: exact_chain.BatchRule | None) -> None:
    # 5 %: the fluid prefills one prompt at a time on the surface and knows no spread of completions
    time = IterationTime(launch_s=0.01, token_s=1e-5)
    system = FluidSystem(time, demand(), rate_per_s=1.0, token_budget=10**6, residents=16)
    chain = exact_chain.ChainSystem(
        time=time, rule=rule or exact_chain.RadRule(128), residents=16, prompt_tokens=100, outputs=Geometric(mean=51)
    )
    assert math.isclose(fluid_capacity_per_s(system, policy), exact_chain.chain_capacity(chain), rel_tol=0.05)


def test_memory_is_a_wall() -> None:
    system = node(100.0, kv_capacity_tokens=8000.0)
    for policy in (DecodeFirst(), PrefillsMixed(), PrefillFirst(), Rad(128)):
        path = fluid_path(system, policy, start=FluidState(2e4), horizon_s=20)
        assert path.kv_tokens.max() <= 8000 * (1 + 1e-5)
        assert path.kv_tokens[-1] > 7900
        assert math.isclose(path.decoding[-1], 8000 / 151, rel_tol=1e-3)


@given(st.floats(0.05, 20), st.sampled_from(POLICIES), st.floats(0.1, 0.95))
@settings(max_examples=15, deadline=None)
def test_the_unit_of_time_does_not_matter(factor: float, policy: FluidPolicy, load: float) -> None:
    system = node(load * 30)
    other = replace(system, time=system.time.scaled(factor), rate_per_s=system.rate_per_s / factor)
    one, two = equilibrium(system, policy), equilibrium(other, policy)
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert math.isclose(one.decoding, two.decoding, rel_tol=1e-7)
    state = FluidState(1000.0, 40.0, 5000.0)
    here, there = field_at(system, policy, state), field_at(other, policy, state)
    assert np.allclose(np.array(here), factor * np.array(there), rtol=1e-9)


def scaled_simulation(scale: int, seed: int, until: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (time, waiting prompts, decoding)/scale of a decode-first node `scale` times as large."""
    rng, clock, waiting, decoding, rows = np.random.default_rng(seed), 0.0, 60 * scale, 0, []
    while clock < until:
        rows.append((clock, waiting / scale, decoding / scale))
        taken = min(waiting, 40 * scale - decoding)
        seconds = 0.02 + 1e-4 / scale * (decoding + 20 * taken)
        left = int(rng.binomial(decoding, 1 / 200))
        waiting += int(rng.poisson(6 * scale * seconds)) - taken
        decoding += taken - left
        clock += seconds
    table = np.array(rows)
    return table[:, 0], table[:, 1], table[:, 2]


def test_paths_of_ever_larger_systems_approach_the_fluids() -> None:
    # an iteration is 1/200 of a stay, so the fluid may be off by about half a percent; noise falls as 1/sqrt(scale)
    time = IterationTime(launch_s=0.02, token_s=1e-4)
    request = Independent(Fixed(20), Geometric(mean=201)).demand(chunk_tokens=100)
    system = FluidSystem(time, request, rate_per_s=6.0, token_budget=10**6, residents=40)
    path = fluid_path(system, DecodeFirst(), start=FluidState(60 * 20.0), horizon_s=30, points=400)
    errors = []
    for scale in (1, 100):
        clock, waiting, decoding = scaled_simulation(scale, seed=scale, until=30)
        fluid_waiting = np.interp(clock, path.time_s, path.waiting_tokens / 20)
        fluid_decoding = np.interp(clock, path.time_s, path.decoding)
        later = clock > 0.5  # the first batch is a jump of the simulation and a steep slope of the fluid
        errors.append(max(np.abs(waiting - fluid_waiting)[later].max(), np.abs(decoding - fluid_decoding)[later].max()))
    assert errors[1] < 0.05 * 60 and errors[1] < errors[0] / 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate_per_s": -1.0}, "rate_per_s"),
        ({"rate_per_s": math.nan}, "rate_per_s"),
        ({"token_budget": 0}, "token_budget"),
        ({"residents": 0}, "residents"),
        ({"kv_capacity_tokens": 10.0}, "kv_capacity_tokens"),
    ],
)
def test_nodes_that_cannot_be(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        node(**changes)  # type: ignore[arg-type]


def test_starts_that_cannot_be() -> None:
    with pytest.raises(InputError, match="residents"):
        fluid_path(node(), DecodeFirst(), start=FluidState(0, 200), horizon_s=1)
    with pytest.raises(InputError, match="no resident"):
        fluid_path(node(), DecodeFirst(), start=FluidState(0, 0, 10), horizon_s=1)
    with pytest.raises(InputError, match="waiting_tokens"):
        FluidState(-1.0)
    with pytest.raises(InputError, match="horizon_s"):
        fluid_path(node(), DecodeFirst(), horizon_s=0)
    with pytest.raises(InputError, match="free_slots"):
        ExclusiveThreshold(0)


def test_the_phase_plane_shows_field_paths_and_rest() -> None:
    axes = plot_phase_plane(
        node(), PrefillFirst(), most_waiting_tokens=3e4, starts=[FluidState(2e4), FluidState(0, 100)], horizon_s=20
    )
    assert len(axes.lines) == 5  # two paths, two starts, rest
    assert len(axes.collections) == 1
    assert axes.get_ylabel() == "waiting for prefill (tokens)"


def test_a_thresholds_throughput_is_its_integral_exactly() -> None:
    """Constant iterations of t: k prompts of one iteration each, then D t ln(N/(N - k))."""
    demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=0, token_budget=100, residents=64)
    for k in (1, 16, 63):
        expected = k / (k * 0.1 + 50 * 0.1 * math.log(64 / (64 - k)))
        assert math.isclose(ExclusiveThreshold(k).saturated_rate_per_s(node) or 0.0, expected, rel_tol=1e-12)
    with pytest.raises(InputError, match="free_slots"):
        ExclusiveThreshold(64).saturated_rate_per_s(node)
