"""Nobody to serve a request, and no room anywhere: every run ends, and says where each request was left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.backpressure import Backpressure
from tileq_engine.cluster import Cluster, ClusterRun, Failure, Node, Outcome, outcome, router, simulate_cluster
from tileq_engine.registry import policy
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=3e-4, token_s=2e-5, kv_token_s=1e-8, pair_s=2e-9)
LINK = KvLink(bytes_per_token=1000.0, node_bytes_per_s=2e8, shared_bytes_per_s=3e8, latency_s=2e-4)
MODES = ("stepped", "python")


def asked(count: int, seed: int = 1, gap_s: float = 1e-3, longest: int = 60) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(gap_s, count)),
        prompt_tokens=rng.integers(1, longest, count),
        output_tokens=rng.integers(1, 20, count),
        tenant=np.arange(count) % 2,
    )


def config(blocks: int, **changes: Any) -> EngineConfig:
    return EngineConfig(token_budget=64, max_num_seqs=5, kv_tokens=16 * blocks, check=True, **changes)


def pools(prefill: EngineConfig, decode: EngineConfig, rule: Any = "vllm_v1", **settings: Any) -> Cluster:
    nodes = [Node("p", TIME, rule, prefill, role="prefill"), Node("d", TIME, rule, decode, role="decode", count=2)]
    return Cluster(nodes, link=LINK, **settings)


def ended(requests: Requests, cluster: Cluster, **settings: Any) -> tuple[ClusterRun, Outcome]:
    """Run in two modes; each request is counted once, holds no KV where it is not on a node, and both agree."""
    found = []
    for mode in MODES:
        run = simulate_cluster(requests, cluster, mode=mode, **settings)  # type: ignore[arg-type]
        what = outcome(run)
        assert what.total == len(requests)
        assert what.finished == int((run.status == 3).sum())
        assert sum(what.rejected.values()) == run.counters["rejected"] == int((run.status == 4).sum())
        if not what.on_nodes and not what.between_pools:
            emit = int(cluster.nodes[0].config.convention == "engine")
            served = run.status == 3
            useful = int((requests.prompt_tokens + requests.output_tokens - emit)[served].sum())
            computed = run.counters["prefill_tokens"] + run.counters["decode_tokens"]
            assert computed == useful + int(run.recomputed_tokens.sum())
        assert (run.stop_reason == "finished") == (what.unserved == 0)
        found.append((run, what))
    assert np.array_equal(found[0][0].finish_ps, found[1][0].finish_ps)
    assert found[0][1] == found[1][1]
    return found[0]


# what is handed over keeps the KV of the prefill node: with no decode node, whoever is left there has too few blocks
# for its next chunk, gives way, is let in again with its first, and so on for ever
@pytest.mark.parametrize("rule", ["vllm_v1", "sjf"])
@pytest.mark.parametrize("blocks", [5, 6, 7, 8, 9])
def test_prefills_do_not_restart_each_other_for_ever_when_nobody_decodes(rule: str, blocks: int) -> None:
    for seed in range(1, 5):
        chunked = config(blocks).with_(token_budget=16)
        run, what = ended(
            asked(40, seed, longest=70),
            pools(chunked, config(100), rule, failures=[Failure(name, 0.012) for name in ("d-0", "d-1")]),
        )
        one_token = int((run.requests.output_tokens == 1).sum())  # these end with their prefill
        too_long = int((run.status == 4).sum())
        assert what.finished >= one_token - too_long
        assert 0 < what.stranded == 40 - what.finished - too_long
        assert run.counters["iterations"] < 1000


def test_a_decode_node_whose_failure_comes_back_never_is_not_waited_for() -> None:
    """Random failures without repair; a longer request than the node that is left can hold does not stop the others."""
    rng = np.random.default_rng(2)
    small, large = config(6), config(20)
    nodes = [
        Node("p", TIME, "sarathi", config(20), role="prefill"),
        Node("small", TIME, "sarathi", small, role="decode"),
        Node("large", TIME, "sarathi", large, role="decode", mtbf_s=0.01),
    ]
    requests = Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(2e-3, 60)),
        prompt_tokens=np.where(np.arange(60) % 5 == 4, 150, 40),
        output_tokens=[10] * 60,
    )
    run, what = ended(requests, Cluster(nodes, link=LINK), seed=4)
    assert run.nodes[2].counters["failures"] == 1
    short = requests.prompt_tokens == 40
    assert np.all(run.status[short] == 3)
    assert what.stranded == int((run.status[~short] != 3).sum()) > 0
    assert what.unserved == what.stranded


def test_a_node_that_does_both_takes_what_no_decode_node_is_left_for() -> None:
    nodes = [
        Node("p", TIME, "sarathi", config(20), role="prefill"),
        Node("d", TIME, "sarathi", config(20), role="decode"),
        Node("b", TIME, "sarathi", config(20), role="both"),
    ]
    for on_full in ("reject", "reroute", "hold"):
        cluster = Cluster(nodes, link=LINK, failures=[Failure("d", 0.02)], on_full=on_full)  # type: ignore[arg-type]
        run, what = ended(asked(60), cluster)
        assert what.finished == 60
        assert run.nodes[1].counters["received"] > 0


@pytest.mark.parametrize("on_full", ["reject", "reroute", "hold"])
@pytest.mark.parametrize("rule", ["jsq", "power_of_two", "random"])
def test_all_nodes_are_full(on_full: Any, rule: str) -> None:
    """A burst on full nodes: turned away with the reason, or held and served in the end; nobody goes to and fro."""
    requests = Requests.from_arrays(arrival_s=[0.0] * 50, prompt_tokens=[20] * 50, output_tokens=[5] * 50)
    nodes = [Node("n", TIME, "sarathi", config(20, queue_limit=3), count=3)]
    run, what = ended(requests, Cluster(nodes, router=rule, on_full=on_full))
    if on_full == "hold":
        assert what.finished == 50
    else:
        assert what.rejected == {"system full": 50 - what.finished}
        assert what.finished <= 9
    assert int(run.routed.max()) <= 1
    assert len(run.moves) <= 50


@pytest.mark.parametrize("on_full", ["reject", "reroute", "hold"])
def test_nodes_under_pressure_do_not_pass_requests_to_and_fro(on_full: Any) -> None:
    pressed = config(20, backpressure=Backpressure("reroute", waiting=2, kv_share=0.5))
    requests = Requests.from_arrays(arrival_s=[0.0] * 60, prompt_tokens=[20] * 60, output_tokens=[5] * 60)
    run, what = ended(requests, Cluster([Node("n", TIME, "sarathi", pressed, count=3)], on_full=on_full))
    assert what.finished == 60 if on_full == "hold" else set(what.rejected) == {"rerouted"}
    assert int(run.routed.max()) <= 1


@pytest.mark.parametrize("on_full", ["reject", "reroute", "hold"])
@pytest.mark.parametrize("at_s", [0.0, 0.01])
def test_all_nodes_are_gone_for_good(on_full: Any, at_s: float) -> None:
    nodes = [Node("n", TIME, "sarathi", config(20, queue_limit=4), count=2)]
    gone = [Failure("n-0", at_s), Failure("n-1", at_s)]
    run, what = ended(asked(40), Cluster(nodes, on_full=on_full, failures=gone))
    assert run.stop_reason == "stalled"
    assert what.stranded == 40 - what.finished - sum(what.rejected.values()) > 0
    assert (what.finished == 0) == (at_s == 0.0)


def test_requests_held_until_a_late_node_comes_up_are_served() -> None:
    """The first node is gone before anybody comes; nobody is up for a long time."""
    nodes = [Node("a", TIME, config=config(20)), Node("late", TIME, config=config(20), start_s=5.0)]
    for on_full in ("reject", "reroute", "hold"):
        cluster = Cluster(nodes, failures=[Failure("a", 0.0)], on_full=on_full)  # type: ignore[arg-type]
        run, what = ended(asked(40), cluster)
        assert what.finished == 40
        assert int(run.first_token_ps.min()) > 5 * 10**12


@pytest.mark.parametrize("on_full", ["reject", "reroute", "hold"])
def test_who_is_too_large_for_every_node_is_turned_away_and_stops_nobody(on_full: Any) -> None:
    requests = Requests.from_arrays(
        arrival_s=np.arange(30) * 1e-4, prompt_tokens=[500 if k == 3 else 20 for k in range(30)], output_tokens=[5] * 30
    )
    nodes = [Node("n", TIME, "sarathi", config(20, queue_limit=2), count=2)]
    run, what = ended(requests, Cluster(nodes, on_full=on_full))
    assert (int(run.status[3]), int(run.reject_reason[3])) == (4, 2)
    if on_full == "hold":
        assert what.finished == 29


@pytest.mark.parametrize("on_full", ["reject", "reroute", "hold"])
@pytest.mark.parametrize("rebalance_s", [None, 2e-3])
def test_tenants_stay_on_their_nodes_and_a_lost_node_stops_only_its_own(on_full: Any, rebalance_s: Any) -> None:
    """Tenant 1's only node dies for good: its requests are stranded, and tenant 0's go on; nobody crosses over."""
    limited = config(20, queue_limit=4)
    nodes = [Node("zero", TIME, "sarathi", limited, tenants=(0,)), Node("one", TIME, "sarathi", limited, tenants=(1,))]
    requests = asked(80, gap_s=5e-4)
    cluster = Cluster(
        nodes,
        router="tenant",
        on_full=on_full,
        rebalance_s=rebalance_s,
        failures=[Failure("one", 0.01)],
    )
    run, what = ended(requests, cluster)
    served = run.status == 3
    assert np.array_equal(run.node[served], requests.tenant[served])
    other = requests.tenant == 0
    assert what.stranded > 0
    assert what.unserved == what.stranded == int((~served & (run.status != 4))[~other].sum())
    if on_full == "hold":
        assert np.all(served[other])


def test_blocks_that_a_transfer_gives_back_let_held_requests_in() -> None:
    """The prefill node is under pressure only by what it holds for the decode node, which comes late."""
    pressed = config(8, backpressure=Backpressure("reroute", kv_share=0.6))
    nodes = [
        Node("p", TIME, "sarathi", pressed, role="prefill"),
        Node("d", TIME, "sarathi", config(40), role="decode", start_s=0.5),
    ]
    requests = Requests.from_arrays(arrival_s=[0.0] * 20, prompt_tokens=[30] * 20, output_tokens=[5] * 20)
    _, what = ended(requests, Cluster(nodes, link=LINK, on_full="hold"))
    assert what.finished == 20


def test_what_is_set_aside_is_what_the_decode_node_expects() -> None:
    """Pools with other ideas of a request's length: blocks set aside are given back to the last one."""
    apart = config(30)
    decode = config(30, reservation="conservative")
    rule, other = policy("sjf", predictor="noise"), policy("sjf")
    nodes = [Node("p", TIME, rule, apart, role="prefill"), Node("d", TIME, other, decode, role="decode", count=2)]
    _, what = ended(asked(60), Cluster(nodes, link=LINK, failures=[Failure("d-0", 0.02, 0.03)]))
    assert what.finished == 60


def test_a_bound_of_time_counts_everybody_too() -> None:
    cluster = Cluster([Node("n", TIME, "sarathi", config(20), count=2)], router=router("power_of_two"))
    for stop_s in (1e-3, 0.02):
        run = simulate_cluster(asked(60), cluster, stop_time_s=stop_s, mode="stepped")
        what = outcome(run)
        assert run.stop_reason == "time"
        assert what.total == 60
        assert what.to_come > 0
