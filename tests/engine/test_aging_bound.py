"""Priority with aging: nobody starves, by the bounds of its docstring, over random runs; deadlines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, RawRun, Requests, simulate
from tileq_engine.policies.due import overtaking_s
from tileq_engine.registry import policy
from tileq_engine.tenants import Tenants
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.004, tile_s=0.002, tile_tokens=16, kv_token_s=1e-6)
CONFIG = EngineConfig(token_budget=48, max_num_seqs=8)


def prioritised(seed: int, n: int, rate: float) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(1 / rate, n).cumsum(),
        prompt_tokens=g.integers(1, 60, n),
        output_tokens=g.integers(1, 30, n),
        priority=g.choice([0, 1, 4], n, p=[0.6, 0.3, 0.1]),
    )


def check_overtaking(run: RawRun, step_s: float) -> int:
    """Nobody who arrives later than the bound after somebody is admitted before it; return how often it was near."""
    arrival, admit = run.arrival_ps, run.admit_ps
    last_ps = arrival + np.rint(overtaking_s(run.requests, step_s) * 1e12).astype(np.int64)
    overtaken = 0
    for i in range(len(admit)):
        late = arrival > last_ps[i]
        assert not (late & (admit < admit[i])).any(), i
        overtaken += bool(((arrival > arrival[i]) & (admit < admit[i])).any())
    return overtaken


def check_waiting(run: RawRun, step_s: float) -> None:
    """The bound in time: step_s (p_i - p) + (w_i + 1) times the longest iteration."""
    asked, trace = run.requests, run.trace
    key = run.arrival_ps + np.int64(round(step_s * 1e12)) * asked.priority
    until = run.arrival_ps + np.rint(overtaking_s(asked, step_s) * 1e12).astype(np.int64)
    longest = int(trace.duration_ps.max())
    work = asked.prompt_tokens + asked.output_tokens - 1
    for i in range(len(asked)):
        if run.admit_ps[i] <= until[i]:
            continue
        before = trace.start_ps < until[i]
        served = np.bincount(trace.request[before], (trace.prefill_tokens + trace.decode)[before], minlength=len(asked))
        here = (run.arrival_ps <= until[i]) & (run.finish_ps > until[i])
        ahead = here & ((key < key[i]) | ((key == key[i]) & (np.arange(len(key)) < i)) | (run.admit_ps <= until[i]))
        left = int((work - served)[ahead].sum())
        assert run.admit_ps[i] <= until[i] + (left + 1) * longest


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    step_s=st.sampled_from([0.0, 0.05, 0.5, 3.0]),
    rate=st.sampled_from([20.0, 80.0, 200.0]),
    base=st.sampled_from(["sarathi", "vllm_v1", "vllm_v0"]),
)
def test_the_bounds_hold_in_every_run(seed: int, step_s: float, rate: float, base: str) -> None:
    """Under light load and three times overload, for every batching."""
    asked = prioritised(seed, 150, rate)
    config = EngineConfig(token_budget=64, max_num_seqs=8, trace_limit=10**6)
    run = simulate(asked, policy("priority_aging", step_s=step_s, base=base), TIME, config, mode="stepped")
    assert run.counters["finished"] == len(asked)
    check_overtaking(run, step_s)
    check_waiting(run, step_s)


def test_the_bound_is_met_and_strict_priority_breaks_it() -> None:
    """Under overload requests are overtaken right up to the bound; without aging, far beyond it."""
    asked, step = prioritised(3, 1500, 150.0), 0.5
    aged = simulate(asked, policy("priority_aging", step_s=step), TIME, CONFIG)
    assert check_overtaking(aged, step) > 100
    arrival, admit = aged.arrival_ps, aged.admit_ps
    lowest = np.flatnonzero(asked.priority == 4)
    slack = [
        int(arrival[i] + 4 * step * 1e12 - arrival[(admit < admit[i])].max()) for i in lowest if admit[i] > arrival[i]
    ]
    assert min(slack) < 0.05 * 4 * step * 1e12  # nearly as late as may be
    strict = simulate(asked, policy("priority", preemptive=False), TIME, CONFIG)
    with pytest.raises(AssertionError):
        check_overtaking(strict, step)


def test_the_bound_counts_from_the_least_priority_there_is() -> None:
    asked = Requests.from_arrays(arrival_s=[0, 1, 2], prompt_tokens=5, output_tokens=5, priority=[5, 3, 4])
    assert overtaking_s(asked, 10.0).tolist() == [20.0, 0.0, 10.0]


def test_a_tenant_at_its_quota_is_passed_over_all_the_same() -> None:
    """The bound is on those who may be admitted: with a quota of 2 for one tenant only the other's requests keep it."""
    asked = prioritised(7, 400, 150.0).with_(tenant=np.arange(400) % 2)
    quotas = CONFIG.with_(tenants=Tenants(("bound", "free"), quotas=(2, None)))
    run = simulate(asked, policy("priority_aging", step_s=0.5), TIME, quotas)
    with pytest.raises(AssertionError):
        check_overtaking(run, 0.5)
    until = run.arrival_ps + np.rint(overtaking_s(asked, 0.5) * 1e12).astype(np.int64)
    for i in np.flatnonzero(asked.tenant == 1):
        assert not ((run.arrival_ps > until[i]) & (run.admit_ps < run.admit_ps[i])).any()
    free = simulate(asked, policy("priority_aging", step_s=0.5), TIME, CONFIG.with_(tenants=Tenants(("a", "b"))))
    check_overtaking(free, 0.5)


def test_no_tenant_starves_under_aging() -> None:
    """Tenants with priorities: the bulk tenant waits for ever under strict priority, and a bounded time with aging."""
    g = np.random.default_rng(11)
    n = 4000
    urgent = g.random(n) < 0.8
    asked = Requests.from_arrays(
        arrival_s=g.exponential(1 / 160.0, n).cumsum(),
        prompt_tokens=g.integers(1, 60, n),
        output_tokens=g.integers(1, 30, n),
        tenant=np.where(urgent, 0, 1),
    )
    tenants = Tenants(("urgent", "bulk"), priorities=(0, 1))
    config = EngineConfig(token_budget=48, max_num_seqs=8, tenants=tenants)
    asked = tenants.with_priorities(asked)
    strict = simulate(asked, policy("priority", preemptive=False), TIME, config)
    aged = simulate(asked, policy("priority_aging", step_s=1.0), TIME, config)
    assert strict.tenants is not None and aged.tenants is not None
    # strict: nothing for the bulk while urgent requests come at more than the machine can serve
    assert strict.tenants.starved_ps[1] > 0.9 * int(asked.arrival_ps[-1])
    assert aged.tenants.starved_ps[1] < 2.0 * 10**12


def test_deadlines_order_and_tenants_have_their_own() -> None:
    """Arrivals 0, 1, 2 ms with allowances 1 s, 1 s and 1 ms: the last goes first among those who wait."""
    asked = Requests.from_arrays(
        arrival_s=[0.0, 0.001, 0.002, 0.003],
        prompt_tokens=30,
        output_tokens=5,
        class_index=[0, 0, 0, 1],
        tenant=[0, 0, 0, 1],
    )
    one = EngineConfig(token_budget=30, max_num_seqs=1)
    by_class = simulate(asked, policy("edf", ttft_s=[1.0, 0.9]), TIME, one)
    assert np.argsort(by_class.admit_ps).tolist() == [0, 3, 1, 2]
    tenants = Tenants(("a", "b"), deadlines_s=(1.0, 0.9))
    by_tenant = simulate(asked, policy("edf", base="sarathi"), TIME, one.with_(tenants=tenants))
    assert np.argsort(by_tenant.admit_ps).tolist() == [0, 3, 1, 2]
    alike = simulate(asked, policy("edf"), TIME, one)
    assert np.argsort(alike.admit_ps).tolist() == [0, 1, 2, 3]


def test_deadlines_are_met_where_first_come_first_served_misses_them() -> None:
    """One urgent request in ten, allowed a tenth of the others' time, at a load where waiting matters."""
    g = np.random.default_rng(8)
    n = 4000
    kind = (g.random(n) < 0.1).astype(int)
    asked = Requests.from_arrays(
        arrival_s=g.exponential(1 / 110.0, n).cumsum(),
        prompt_tokens=g.integers(1, 60, n),
        output_tokens=g.integers(1, 30, n),
        class_index=kind,
    )
    allowed = np.array([3.0, 0.3])
    late = {}
    for name, rule in (("edf", policy("edf", ttft_s=list(allowed))), ("fcfs", policy("vllm_v1"))):
        run = simulate(asked, rule, TIME, CONFIG)
        late[name] = float(((run.first_token_ps - run.arrival_ps) * 1e-12 > allowed[kind]).mean())
    assert late["edf"] <= late["fcfs"]
    assert late["fcfs"] > 0.01


def test_bad_settings_get_one_line() -> None:
    for params, told in (({"step_s": -1.0}, "step_s is -1.0"), ({"step_s": 1e9}, "the clock's end")):
        with pytest.raises(InputError, match=told):
            policy("priority_aging", **params)
    with pytest.raises(InputError, match="ttft_s is 0"):
        policy("edf", ttft_s=0.0)
    with pytest.raises(InputError, match="ttft_s is empty"):
        policy("edf", ttft_s=[])
    asked = Requests.from_arrays(
        arrival_ps=[0, 1], prompt_tokens=5, output_tokens=5, class_index=[0, 2], priority=[0, 9]
    )
    with pytest.raises(InputError, match="ttft_s has 2 values; expected one, or one for each of 3 classes"):
        simulate(asked, policy("edf", ttft_s=[1.0, 2.0]), TIME)
    with pytest.raises(InputError, match="lower step_s"):
        simulate(asked, policy("priority_aging", step_s=1e6), TIME)
