"""Prefix caches, tenants, backpressure and bottlenecks on the nodes of a cluster: the same books, kept per node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_cluster_identity import TIME, difference

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.cluster import Cluster, ClusterRun, Failure, Node, simulate_cluster
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.registry import policy
from tileq_engine.tenants import Tenants
from tileq_theory.disaggregation import KvLink

LINK = KvLink(bytes_per_token=1000.0, node_bytes_per_s=2e8, latency_s=2e-4)


def conversations(count: int, seed: int, gap_s: float = 2e-3, many: int = 12) -> tuple[Requests, np.ndarray]:
    """Requests of `many` conversations: each has the blocks of the prompts before it in front of its own."""
    rng = np.random.default_rng(seed)
    whose = rng.integers(0, many, count)
    blocks = [[(c, k) for k in range(1 + int((whose[:i] == c).sum()) % 5)] for i, c in enumerate(whose.tolist())]
    requests = Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(gap_s, count)),
        prompt_tokens=[16 * len(b) + int(rng.integers(1, 15)) for b in blocks],
        output_tokens=rng.integers(1, 20, count),
        tenant=whose % 3,
        blocks=BlockPaths.from_lists(blocks, 16),
    )
    return requests, whose


def config(**changes: Any) -> EngineConfig:
    return EngineConfig(token_budget=48, max_num_seqs=6, kv_tokens=1280, prefix_cache=True, check=True, **changes)


def account(run: ClusterRun) -> None:
    asked, total = run.requests, run.counters
    assert run.stop_reason == "finished"
    assert np.array_equal(run.tokens_done, asked.output_tokens)
    computed = total["prefill_tokens"] + total["decode_tokens"] + total["prefix_hit_tokens"]
    useful = int(asked.prompt_tokens.sum() + asked.output_tokens.sum()) - len(asked)
    assert computed == useful + total["recomputed_tokens"] + total["lost_tokens"]
    assert int(run.prefix_hit_tokens.sum()) == total["prefix_hit_tokens"] > 0


@pytest.mark.parametrize("name", ["sarathi", "vllm_v1", "sglang", "vtc"])
def test_one_node_with_everything_on_is_the_engine(name: str) -> None:
    requests, _ = conversations(300, 1)
    everything = config(tenants=Tenants(("a", "b", "c"), weights=(3.0, 1.0, 1.0)), watch=True)
    run = simulate_cluster(requests, Cluster([Node("one", TIME, name, everything)]))
    single = simulate(requests, policy(name), TIME, everything)
    raw = run.node_raw(0)
    assert difference(single, raw) == []
    assert np.array_equal(single.prefix_hit_tokens, raw.prefix_hit_tokens)
    for part in ("tenants", "bottlenecks"):
        ours, theirs = getattr(raw, part), getattr(single, part)
        for item in type(theirs).__dataclass_fields__:
            assert np.array_equal(np.asarray(getattr(ours, item)), np.asarray(getattr(theirs, item))), (part, item)


FEATURES: dict[str, dict[str, Any]] = {
    "control": {"control": TbtControl(2e-3, 8, 96)},
    "hold": {"backpressure": Backpressure("hold")},
    "reject": {"backpressure": Backpressure("reject", waiting=3)},
    "reject by blocks": {"backpressure": Backpressure("reject", kv_share=0.3)},
    "reroute": {"backpressure": Backpressure("reroute", waiting=2, kv_share=0.8)},
    "shrink": {"backpressure": Backpressure("shrink", waiting=2, shrunk_tokens=16)},
    "optimistic": {"reservation": "optimistic"},
    "prompt": {"reservation": "prompt"},
    "conservative": {"reservation": "conservative"},
    "quotas": {"tenants": Tenants(("a", "b", "c"), quotas=(1, 2, None))},
    "queue limit": {"queue_limit": 4},
    "all": {
        "control": TbtControl(2e-3, 8, 96),
        "backpressure": Backpressure("reroute", waiting=4),
        "reservation": "conservative",
        "tenants": Tenants(("a", "b", "c"), (3.0, 1.0, 0.0), (2, None, 1)),
        "queue_limit": 12,
        "watch": True,
    },
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("rule", ["sarathi", "vllm_v1"])
def test_one_node_with_each_feature_is_the_engine(name: str, rule: str) -> None:
    """Behind any way to treat full nodes and to choose, at an overload that makes the feature act."""
    requests, _ = conversations(300, 5, 4e-4)
    own = config(**FEATURES[name])
    single = simulate(requests, policy(rule), TIME, own)
    if name in ("reject", "reject by blocks", "reroute", "queue limit", "all"):
        assert single.counters["rejected"] > 10
    for router, on_full in (("jsq", "reject"), ("random", "reroute"), ("power_of_two", "reject")):
        cluster = Cluster([Node("one", TIME, rule, own)], router=router, on_full=on_full)  # type: ignore[arg-type]
        run = simulate_cluster(requests, cluster)
        raw = replace(run.raw(), samples=run.nodes[0].samples)
        assert difference(single, raw) == [], (router, on_full)
        assert np.array_equal(single.prefix_hit_tokens, run.prefix_hit_tokens)
        if single.tenants is not None:
            ours = run.nodes[0].tenants
            for item in type(single.tenants).__dataclass_fields__:
                assert np.array_equal(np.asarray(getattr(ours, item)), np.asarray(getattr(single.tenants, item))), item


def test_a_controller_that_comes_up_again_begins_anew() -> None:
    """What it had learnt of its machine is gone with it: the first iterations after a failure are those of a start."""
    own = EngineConfig(token_budget=256, max_num_seqs=6, kv_tokens=4096, control=TbtControl(1e-3, 8, 256))
    rng = np.random.default_rng(6)
    at = np.cumsum(rng.exponential(1e-3, 300)) + np.where(np.arange(300) < 150, 0.0, 10.0)
    lengths = rng.integers(20, 200, 300), rng.integers(2, 20, 300)

    def some(chosen: slice) -> Requests:
        return Requests.from_arrays(
            arrival_s=at[chosen], prompt_tokens=lengths[0][chosen], output_tokens=lengths[1][chosen]
        )

    node = Node("one", TIME, "sarathi", own)
    # nothing of the first half is left when the node fails
    failed = simulate_cluster(some(slice(None)), Cluster([node], failures=[Failure("one", 5.0, 5.1)]))
    went_on = simulate_cluster(some(slice(None)), Cluster([node]))
    alone = simulate(some(slice(150, None)), policy("sarathi"), TIME, own)
    assert np.array_equal(failed.finish_ps[150:], alone.finish_ps)
    assert not np.array_equal(went_on.finish_ps[150:], alone.finish_ps)


def test_affinity_finds_what_random_loses() -> None:
    requests, whose = conversations(600, 2, 1e-3, 60)  # of which no single cache holds all
    hits = {}
    for router in ("random", "prefix_affinity", "session_affinity"):
        cluster = Cluster([Node("gpu", TIME, "sarathi", config(), count=4)], router=router)
        run = simulate_cluster(requests, cluster, prefixes=whose, sessions=whose)
        account(run)
        hits[router] = run.counters["prefix_hit_tokens"]
    assert hits["prefix_affinity"] > 1.3 * hits["random"]
    assert hits["session_affinity"] > 1.3 * hits["random"]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_books_balance_when_nodes_with_caches_die(seed: int, split: bool) -> None:
    requests, whose = conversations(150, 10 + seed)
    rng = np.random.default_rng(seed)
    settings = config(tenants=Tenants(("a", "b", "c")))
    roles: Any = ("prefill", "decode") if split else ("both",)
    nodes = [Node(role, TIME, ("sarathi", "vllm_v1")[seed % 2], settings, role=role, count=2) for role in roles]
    failures = [
        Failure(f"{role}-{k}", at := float(rng.uniform(0.02, 0.3)), at + 0.03) for role in roles for k in (0, 1)
    ]
    cluster = Cluster(nodes, router="prefix_affinity", link=LINK if split else None, failures=failures)
    run = simulate_cluster(requests, cluster, prefixes=whose)
    account(run)
    assert run.counters["failures"] == len(failures)
    for node in run.nodes:
        assert node.tenants is not None
    delivered = sum(int(node.tenants.end_delivered_tokens.sum()) for node in run.nodes if node.tenants is not None)
    assert delivered == int(requests.output_tokens.sum())


def test_backpressure_sends_requests_elsewhere_or_turns_them_away() -> None:
    requests, _ = conversations(300, 3, 4e-4)
    alone = {}
    for action in ("reroute", "reject"):
        pressed: Any = Backpressure(action, waiting=2)  # type: ignore[arg-type]
        nodes = [Node("tight", TIME, config=config(backpressure=pressed)), Node("wide", TIME, config=config(), count=2)]
        alone[action] = simulate_cluster(requests, Cluster(nodes, router="random"), seed=1)
    assert alone["reroute"].counters["rejected"] == 0
    assert set(alone["reroute"].moves.reason.tolist()) == {1}
    assert set(alone["reroute"].moves.source.tolist()) == {0}
    away = alone["reject"].status == 4
    assert set(alone["reject"].reject_reason[away].tolist()) == {6}
    everywhere = Cluster([Node("tight", TIME, config=config(backpressure=Backpressure("reroute", waiting=1)), count=2)])
    full = simulate_cluster(requests, everywhere)
    assert set(full.reject_reason[full.status == 4].tolist()) == {7}
