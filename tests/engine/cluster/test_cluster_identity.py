"""One node behind any router is the single engine, to the bit; compiled, stepped and plain clusters are one another."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, RawRun, Requests, policy_names, simulate
from tileq_engine.cluster import Cluster, ClusterRun, Node, router_names, simulate_cluster
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(
    launch_s=3e-4, weight_floor_s=2e-4, tile_s=1e-4, tile_tokens=16, pair_s=2e-9, kv_token_s=1e-8, sequence_s=1e-6
)
PARAMS: dict[str, dict[str, Any]] = {
    "rad": {"b_col": 8, "b_lcm": 16},
    "rad_general": {"levels": [(16, 8, 8, 0.5), (8, 0, 8, 0.5)]},
    "wait": {"thresholds": (2,)},
    "nested_wait": {"boundaries": (4,), "thresholds": (2, 2)},
}


def asked(count: int, seed: int, gap_s: float = 2e-3) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(gap_s, count) * rng.integers(0, 2, count)),
        prompt_tokens=rng.integers(1, 64, count),
        output_tokens=rng.integers(1, 30, count),
        tbt_limit_s=rng.integers(0, 3, count) * 2e-3,
        paying=rng.integers(0, 2, count).astype(bool),
        tenant=rng.integers(0, 3, count),
    )


def difference(one: RawRun, other: RawRun) -> list[str]:
    """Names of everything in which two runs differ; how many iterations a jump took is no part of what happened."""
    found = []
    for item in fields(RawRun):
        a, b = getattr(one, item.name), getattr(other, item.name)
        if isinstance(a, np.ndarray) and not np.array_equal(a, b):
            found.append(item.name)
    for part in ("gaps", "samples"):
        for item in fields(getattr(one, part)):
            a, b = getattr(getattr(one, part), item.name), getattr(getattr(other, part), item.name)
            if not np.array_equal(np.asarray(a, dtype=object), np.asarray(b, dtype=object)):
                found.append(f"{part}.{item.name}")
    for part in ("counters", "integrals"):
        ours = getattr(other, part)
        kept = {k: v for k, v in getattr(one, part).items() if k != "jumped_iterations"}
        found += [f"{part}.{k}: {v} against {ours[k]}" for k, v in kept.items() if ours[k] != v]
    found += [name for name in ("end_ps", "stop_reason") if getattr(one, name) != getattr(other, name)]
    return found


def behind(requests: Requests, node: Node, router: str, mode: Any, **settings: Any) -> ClusterRun:
    given = np.arange(len(requests)) % 5
    return simulate_cluster(
        requests, Cluster([node], router=router), mode=mode, sessions=given, prefixes=given, **settings
    )


@pytest.mark.parametrize("mode", ["compiled", "stepped"])
@pytest.mark.parametrize("router", router_names())
def test_one_node_behind_any_router_is_the_engine(router: str, mode: Any) -> None:
    requests = asked(300, 1)
    config = EngineConfig(token_budget=48, max_num_seqs=6, kv_tokens=640, check=True)
    rule = policy("vllm_v1")
    run = behind(requests, Node("one", TIME, rule, config), router, mode)
    assert difference(simulate(requests, rule, TIME, config, mode=mode), run.node_raw(0)) == []
    assert run.counters["finished"] == 300


@pytest.mark.parametrize("name", policy_names())
def test_one_node_of_any_policy_is_the_engine(name: str) -> None:
    requests = asked(250, 2)
    rule = policy(name, **PARAMS.get(name, {}))
    config = EngineConfig(token_budget=64, max_num_seqs=6, kv_tokens=800, check=True, convention="paper")
    for router in ("jsq", "random"):
        run = behind(requests, Node("one", TIME, rule, config), router, "compiled")
        assert difference(simulate(requests, rule, TIME, config), run.node_raw(0)) == [], router


@pytest.mark.parametrize("stop_s", [0.0, 0.05, 0.2501])
@pytest.mark.parametrize("router", ["jsq", "power_of_two"])
@pytest.mark.parametrize("changes", [{}, {"queue_limit": 3}, {"preemption": "swap", "swap_token_s": 1e-6}])
def test_bounds_limits_and_swap(stop_s: float, router: str, changes: dict[str, Any]) -> None:
    requests = asked(300, 3)
    config = EngineConfig(token_budget=48, max_num_seqs=6, kv_tokens=640, **changes)
    run = behind(requests, Node("one", TIME, "sarathi", config), router, "compiled", stop_time_s=stop_s or None)
    single = simulate(requests, policy("sarathi"), TIME, config.with_(stop_time_s=stop_s or None))
    assert difference(single, replace(run.raw(), samples=run.nodes[0].samples)) == []


def test_residents_that_arrive_with_their_kv() -> None:
    requests = asked(60, 4)
    warm = requests.with_(prefilled_tokens=np.where(np.arange(60) % 3 == 0, requests.prompt_tokens, 0))
    for name in ("sarathi", "vllm_v1", "slai"):
        config = EngineConfig(token_budget=48, max_num_seqs=6, kv_tokens=640, check=True)
        run = behind(warm, Node("one", TIME, name, config), "jsq", "compiled")
        assert difference(simulate(warm, policy(name), TIME, config), run.node_raw(0)) == []


@pytest.mark.parametrize("router", router_names())
def test_modes_agree_on_a_cluster_of_unlike_nodes(router: str) -> None:
    requests = asked(120, 5, gap_s=6e-4)
    config = EngineConfig(token_budget=48, max_num_seqs=6, kv_tokens=640)
    slow = IterationTime(launch_s=9e-4, token_s=2e-5)
    nodes = [
        Node("a", TIME, "sarathi", config, count=2),
        Node("b", slow, "vllm_v1", config.with_(max_num_seqs=3), weight=0.5),
        Node("c", TIME, "slai", config, warm_s=0.02, warm_factor=1.5),
    ]
    runs = []
    for mode in ("compiled", "stepped", "python"):
        given = np.arange(120) % 7
        one: Any = mode
        runs.append(simulate_cluster(requests, Cluster(nodes, router=router), mode=one, sessions=given, prefixes=given))
    for other in runs[1:]:
        assert np.array_equal(runs[0].node, other.node)
        for k in range(4):
            assert difference(runs[0].node_raw(k), other.node_raw(k)) == []
    assert runs[0].counters["finished"] == 120


def test_a_node_of_a_cluster_is_the_engine_on_the_requests_it_was_given() -> None:
    """Whatever the router did, each node has done what a single engine does with the same requests."""
    requests = asked(400, 6, gap_s=5e-4)
    config = EngineConfig(token_budget=48, max_num_seqs=6, kv_tokens=640)
    nodes = [Node("a", TIME, "sarathi", config, count=3), Node("b", TIME, "vllm_v0", config)]
    run = simulate_cluster(requests, Cluster(nodes, router="jsq"))
    for k in range(4):
        raw = run.node_raw(k)
        single = simulate(raw.requests, run.nodes[k].node.policy, TIME, config)
        for name in ("admit_ps", "first_token_ps", "finish_ps", "preemptions", "recomputed_tokens", "max_gap_ps"):
            assert np.array_equal(getattr(single, name), getattr(raw, name)), name
        assert single.integrals == {k: v for k, v in raw.integrals.items() if k != "up_ps"}
