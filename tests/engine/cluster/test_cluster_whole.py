"""A cluster's run seen as one: one node is the single engine's document; of many, shares are shares and means means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tileq as tq
from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, Node, simulate_cluster
from tileq_engine.cluster.bottlenecks import cluster_bottlenecks
from tileq_engine.registry import policy
from tileq_engine.tenants import Tenants
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.005, token_s=5e-5, kv_token_s=5e-8)
SETTINGS = EngineConfig(token_budget=128, max_num_seqs=16, kv_tokens=16_000, watch=True)
# what differs between the two by nature: who was asked, the program of the capacity, kernels' own counts
OWN = {"setting", "utilisation", "provenance", "counters", "bottlenecks", "warnings"}


def requests(count: int = 300, rate: float = 200.0, seed: int = 0) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1 / rate, count)),
        prompt_tokens=rng.integers(1, 600, count),
        output_tokens=rng.integers(1, 60, count),
        tenant=rng.integers(0, 2, count),
    )


@pytest.mark.parametrize("router", ["random", "jsq", "power_of_two"])
@pytest.mark.parametrize("tenants", [None, ["gold=3@0.5", "free=1@0.5"]])
def test_the_document_of_one_node_is_that_of_one_engine(router: str, tenants: list[str] | None) -> None:
    name = "sarathi" if tenants is None else "vtc"
    asked: dict[str, Any] = {"requests": 150, "replications": 1, "seed": 5, "rate": 30.0, "classes": ["512:64"]}
    single = tq.simulate(name, tenants=tenants, **asked).to_dict()
    node = {"name": "gpu", "policy": name}
    cluster = tq.simulate(cluster={"router": router, "node": [node]}, tenants=tenants, **asked).to_dict()
    assert {key for key in single if single[key] != cluster.get(key)} <= OWN
    same = {key for key in single["counters"] if key != "jumped_iterations"}
    assert all(single["counters"][key] == cluster["counters"][key] for key in same)


def test_shares_are_shares_and_batches_are_a_node_s() -> None:
    run = simulate_cluster(requests(), Cluster([Node("a", TIME, config=SETTINGS, count=4)]), seed=1)
    found = run.to_dict()
    busy = np.array([node["busy_share"] for node in found["nodes"]])
    assert found["busy_share"] == pytest.approx(busy.mean(), rel=1e-12)
    assert found["busy_share"] <= 1
    kv = found["kv"]
    assert kv["blocks_total"] == 4 * SETTINGS.kv_blocks
    assert kv["mean_blocks"] <= kv["max_blocks"] <= kv["blocks_total"]
    assert kv["mean_share"] <= kv["max_share"] <= 1
    batch = found["batch"]
    assert batch["mean_prefill_tokens"] + batch["mean_decode_tokens"] <= SETTINGS.token_budget
    assert batch["mean_sequences"] <= SETTINGS.max_num_seqs
    longest = max(int(node.samples.duration_ps.max()) for node in run.nodes) / 1e12
    assert batch["mean_duration_s"] <= longest
    assert run.run().info.token_budget == 4 * SETTINGS.token_budget


def test_tenants_of_nodes_add_up() -> None:
    tenants = Tenants(("gold", "free"), weights=(3.0, 1.0))
    node = Node("a", TIME, policy=policy("vtc"), config=SETTINGS.with_(tenants=tenants), count=3)
    asked = requests()
    run = simulate_cluster(asked, Cluster([node]), seed=1)
    record = run.run().tenants
    assert record is not None
    for t in range(2):
        mine = asked.tenant == t
        assert record.end_prefilled_tokens[t] == asked.prompt_tokens[mine].sum()
        assert record.end_delivered_tokens[t] == asked.output_tokens[mine].sum()
        assert record.starved_ps[t] == max(n.tenants.starved_ps[t] for n in run.nodes if n.tenants is not None)
    shares = run.to_dict()["tenants"]["each"]
    assert shares["gold"]["service_share"] + shares["free"]["service_share"] == pytest.approx(1, abs=1e-12)


def test_where_requests_waited_and_why() -> None:
    pre = Node("pre", TIME, config=SETTINGS, role="prefill", count=2)
    dec = Node("dec", TIME, config=SETTINGS.with_(max_num_seqs=2), role="decode")
    run = simulate_cluster(requests(), Cluster([pre, dec], link=KvLink(131_072.0, node_bytes_per_s=1e8)), seed=1)
    rows = cluster_bottlenecks(run)
    assert ("pre", "prefill burst") in {(row["where"], row["cause"]) for row in rows}
    link = next(row for row in rows if row["where"] == "link")
    late = run.transfers.start_ps > run.transfers.ready_ps
    # the union of the waits is no longer than their sum, and as long as the longest at least
    waits = (run.transfers.start_ps - run.transfers.ready_ps)[late] / 1e12
    assert waits.max() <= link["seconds"] <= waits.sum() + 1e-9
    assert link["first_s"] == run.transfers.ready_ps[late].min() / 1e12
    assert 1 <= link["most_waiting"] <= late.sum()
    for row in rows:
        assert 0 <= row["share"] <= 1
        assert row["seconds"] >= row["longest"]["end_s"] - row["longest"]["begin_s"] - 1e-9
    assert [row["seconds"] for row in rows] == sorted((row["seconds"] for row in rows), reverse=True)


@pytest.mark.parametrize("mode", ["python", "compiled"])
def test_rules_that_waited_for_company_go_on_when_nobody_is_to_come_and_not_before(mode: Any) -> None:
    """A decode node rests with its only seat taken; it wakes at the last arrival, and time does not run backwards."""
    pre = Node("pre", TIME, config=SETTINGS, role="prefill")
    dec = Node("dec", TIME, policy=policy("wait", thresholds=2), config=SETTINGS.with_(max_num_seqs=1), role="decode")
    asked = Requests.from_arrays(arrival_s=[0.0, 5.0], prompt_tokens=[100, 100], output_tokens=[4, 4])
    cluster = Cluster([pre, dec], link=KvLink(131_072.0, node_bytes_per_s=1e10))
    run = simulate_cluster(asked, cluster, mode=mode)
    assert run.stop_reason == "finished"
    assert (run.transfers.start_ps >= run.transfers.ready_ps).all()
    assert (run.transfers.end_ps >= run.transfers.start_ps).all()
    assert (run.finish_ps >= asked.arrival_ps[-1]).all()
    assert (run.finish_ps > run.first_token_ps).all()
    assert run.gaps.gap_ps.min() > 0


def test_tenants_of_a_cluster_have_their_priorities_and_sessions() -> None:
    asked: dict[str, Any] = {"load": 1.5, "requests": 200, "replications": 1, "classes": ["512:64"]}
    node = {"name": "gpu", "count": 2, "policy": "priority"}
    tenants = ["urgent=1:priority=0@0.5", "batch=1:priority=9@0.5"]
    each = tq.simulate(cluster={"node": [node]}, tenants=tenants, **asked).to_dict()["tenants"]["each"]
    assert each["urgent"]["ttft_s"]["mean"] < each["batch"]["ttft_s"]["mean"]
    talks = {"load": 0.5, "requests": 120, "replications": 1, "workload": "conversations:turns=3"}
    node = {"name": "gpu", "count": 2, "prefix_cache": True}
    found = tq.simulate(cluster={"router": "session_affinity", "node": [node]}, tenants=tenants, **talks).to_dict()
    assert sum(t["requests"] for t in found["tenants"]["each"].values()) == 120
    assert 0 < found["prefix_cache"]["hit_rate"] < 1
    assert min(t["requests"] for t in found["tenants"]["each"].values()) > 10


@pytest.mark.parametrize(
    "setting", [{"check": True}, {"watermark": 0.1}, {"preemption": "swap"}, {"reservation": "prompt"}, {"seats": 4}]
)
def test_what_a_file_says_is_not_ignored_in_python(setting: dict[str, Any]) -> None:
    with pytest.raises(tq.InputError, match=next(iter(setting))):
        tq.simulate(cluster={"node": [{"name": "gpu"}]}, requests=20, replications=1, classes=["512:16"], **setting)


def test_nobody_watched_and_nothing_is_named() -> None:
    run = simulate_cluster(requests(50), Cluster([Node("a", TIME, config=SETTINGS.with_(watch=False))]), seed=1)
    assert cluster_bottlenecks(run) == []
