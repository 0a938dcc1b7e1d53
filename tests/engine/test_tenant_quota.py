"""A tenant's quota: no more of its requests active at once than agreed, under every policy with a queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, RawRun, Requests, Scheduler, simulate
from tileq_engine.registry import policy, policy_names
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.004, tile_s=0.002, tile_tokens=16, kv_token_s=1e-6)
QUEUED = [name for name in policy_names() if "wait" not in name]
NEEDS: dict[str, dict[str, Any]] = {"rad_general": {"levels": [(32, 16, 16, 1.0)]}, "theta": {"k": 1}}


def tenants(seed: int, n: int = 50) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(0.01, n).cumsum(),
        prompt_tokens=g.integers(1, 40, n),
        output_tokens=g.integers(1, 20, n),
        tenant=(g.random(n) < 0.3).astype(int) * 2,  # tenants 0 and 2; nobody is tenant 1
        priority=g.integers(0, 3, n),
        class_index=g.integers(0, 2, n),
    )


def most_at_once(run: RawRun, tenant: int) -> int:
    """Return the most requests of a tenant between admission and finish (nobody is preempted here)."""
    mine = (run.requests.tenant == tenant) & (run.admit_ps >= 0)
    moments = [(int(t), -1) for t in run.finish_ps[mine]] + [(int(t), 1) for t in run.admit_ps[mine]]
    active = most = 0
    for _, step in sorted(moments):  # who leaves at a moment makes room for who enters at it
        active += step
        most = max(most, active)
    return most


@pytest.mark.parametrize("name", QUEUED)
@pytest.mark.parametrize("quota", [1, 3])
def test_nobody_has_more_than_the_quota(name: str, quota: int) -> None:
    config = EngineConfig(token_budget=48, max_num_seqs=12, check=True)
    asked = tenants(quota)
    run = simulate(asked, policy(name, **NEEDS.get(name, {}), tenant_quota=quota), TIME, config)
    assert run.stop_reason == "finished" and run.counters["finished"] == len(asked)
    if name not in ("psjf", "srpt"):  # whoever is overtaken there keeps its seat without being preempted
        assert run.counters["preemptions"] == 0 or name == "priority"
    if run.counters["preemptions"] == 0:
        assert 1 <= most_at_once(run, 0) <= quota and most_at_once(run, 2) <= quota


@pytest.mark.parametrize("name", QUEUED)
def test_a_quota_that_nobody_reaches_changes_nothing(name: str) -> None:
    config = EngineConfig(token_budget=48, max_num_seqs=12, kv_tokens=320)
    needs = NEEDS.get(name, {})
    free = simulate(tenants(5), policy(name, **needs), TIME, config)
    bound = simulate(tenants(5), policy(name, **needs, tenant_quota=50), TIME, config)
    assert bound.finish_ps.tolist() == free.finish_ps.tolist()
    assert bound.counters["preemptions"] == free.counters["preemptions"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(QUEUED), st.integers(1, 4))
def test_compiled_and_uncompiled_agree(seed: int, name: str, quota: int) -> None:
    config = EngineConfig(token_budget=48, max_num_seqs=8, kv_tokens=256, stop_iterations=20_000)
    chosen = policy(name, **NEEDS.get(name, {}), tenant_quota=quota)
    asked = tenants(seed, 20)
    one, other = (simulate(asked, chosen, TIME, config, mode=mode) for mode in ("compiled", "python"))
    assert one.finish_ps.tolist() == other.finish_ps.tolist() and one.stop_reason == other.stop_reason


def test_a_tenant_at_its_quota_is_passed_over() -> None:
    """Ten requests of one tenant stand before one of another: the other does not wait for them."""
    asked = Requests.from_arrays(arrival_ps=np.arange(11), prompt_tokens=8, output_tokens=50, tenant=[*[0] * 10, 1])
    config = EngineConfig(token_budget=64, max_num_seqs=4)
    without = simulate(asked, "sarathi", TIME, config)
    fair = simulate(asked, policy("sarathi", tenant_quota=2), TIME, config)
    assert int(np.argsort(without.admit_ps)[-1]) == 10
    assert fair.admit_ps[10] <= np.sort(fair.admit_ps)[2]


def test_the_scheduler_counts_tenants_too() -> None:
    s = Scheduler(policy("sarathi", tenant_quota=1), EngineConfig(token_budget=64), capacity=8, tenants=2, python=True)
    for tenant in (0, 0, 1):
        s.add(prompt_tokens=4, output_tokens=3, tenant=tenant)
    assert sorted(s.decide(now_ps=0).ids.tolist()) == [0, 2]
    with pytest.raises(InputError, match="tenant is 2; the scheduler was made for tenants 0 to 1"):
        s.add(prompt_tokens=4, output_tokens=3, tenant=2)


def test_what_has_no_quota() -> None:
    with pytest.raises(InputError, match="tenant_quota is 0"):
        policy("sarathi", tenant_quota=0)
    for name in ("wait", "nested_wait"):
        with pytest.raises(InputError, match="tenant_quota has no meaning"):
            policy(name, tenant_quota=2)
    with pytest.raises(InputError, match="did you mean tenant_quota"):
        policy("sarathi", tenant_quotas=2)
