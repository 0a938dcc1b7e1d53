"""A replica dies at a random time: nobody is lost, nobody finishes twice, every token is accounted for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, ClusterRun, Failure, Node, simulate_cluster
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=3e-4, token_s=2e-5, kv_token_s=1e-8, pair_s=2e-9)
LINK = KvLink(bytes_per_token=1000.0, node_bytes_per_s=2e8, shared_bytes_per_s=3e8, latency_s=2e-4)
RULES = ("vllm_v1", "sarathi", "vllm_v0", "slai")


def asked(count: int, rng: np.random.Generator) -> Requests:
    return Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1e-3, count)),
        prompt_tokens=rng.integers(1, 60, count),
        output_tokens=rng.integers(1, 20, count),
    )


def account(run: ClusterRun) -> None:
    """Every request has finished once with all its tokens, and the tokens that the nodes computed are those asked for,
    those computed again after a preemption or a failure, and nothing else."""
    asked, total = run.requests, run.counters
    assert run.stop_reason == "finished"
    assert np.all(run.status == 3)
    assert np.array_equal(run.tokens_done, asked.output_tokens)
    assert total["finished"] == len(asked) == sum(n.counters["finished"] for n in run.nodes)
    assert np.all(run.finish_ps >= run.first_token_ps)
    assert np.all(run.first_token_ps > asked.arrival_ps)
    emit = int(run.cluster.replicas[0].config.convention == "engine")
    useful = int(asked.prompt_tokens.sum() + asked.output_tokens.sum() - emit * len(asked))
    computed = total["prefill_tokens"] + total["decode_tokens"]
    lost = total["recomputed_tokens"] + total["lost_tokens"]
    assert int(run.recomputed_tokens.sum()) == lost
    assert computed == useful + lost
    assert sum(n.counters["routed"] for n in run.nodes) == int(run.routed.sum())
    assert int(run.routed.sum()) == len(asked) + len(run.moves)


def random_cluster(rng: np.random.Generator) -> Cluster:
    """Two to four replicas, or pools of one to three each, on tight memory; one to three of them die."""
    convention: Any = ("engine", "paper")[rng.integers(2)]
    config = EngineConfig(
        token_budget=64, max_num_seqs=5, kv_tokens=int(rng.integers(8, 24)) * 16, convention=convention, check=True
    )
    rule = RULES[rng.integers(len(RULES))]
    split = bool(rng.integers(2))
    roles: Any = ("prefill", "decode") if split else ("both",)
    nodes = [Node(role, TIME, rule, config, role=role, count=int(rng.integers(1 + (not split), 4))) for role in roles]
    names = [one.name for node in nodes for one in node.replicas]
    failures = []
    for name in rng.choice(names, size=int(rng.integers(1, min(4, len(names) + 1))), replace=False):
        at = float(rng.uniform(0, 0.12))
        failures.append(Failure(str(name), at, at + float(rng.uniform(1e-4, 0.05))))
    router = ("jsq", "random", "power_of_two", "least_work", "round_robin")[rng.integers(5)]
    return Cluster(nodes, router=router, link=LINK if split else None, failures=failures)


def one_run(seed: int) -> ClusterRun:
    rng = np.random.default_rng((2026, seed))
    run = simulate_cluster(asked(int(rng.integers(20, 90)), rng), random_cluster(rng), seed=seed)
    account(run)
    return run


def test_nobody_is_lost() -> None:
    runs = [one_run(seed) for seed in range(60)]
    assert sum(int((run.moves.reason == 0).sum()) for run in runs) > 100, "too few requests were hit to tell"
    assert sum(int((run.transfers.end_ps < 0).sum()) for run in runs) > 0, "no transfer was broken"
    assert sum(run.counters["aborted_tokens"] for run in runs) > 0


@pytest.mark.campaign
def test_nobody_is_lost_over_a_thousand_runs() -> None:
    for seed in range(1000):
        one_run(1000 + seed)


def test_a_dead_cluster_keeps_its_requests() -> None:
    """Nobody comes back: what had not finished is stranded, and the run says that it stalled."""
    requests = asked(40, np.random.default_rng(1))
    config = EngineConfig(token_budget=64, max_num_seqs=5)
    run = simulate_cluster(requests, Cluster([Node("a", TIME, config=config)], failures=[Failure("a", 0.01)]))
    done = int((run.status == 3).sum())
    assert run.stop_reason == "stalled"
    assert 0 < done < 40
    assert run.counters["stranded"] == 40 - done
    assert run.node_load().finished.tolist() == [done]


def test_random_failures_come_at_their_rate_and_end_with_the_arrivals() -> None:
    requests = Requests.from_arrays(arrival_s=np.linspace(0, 2000.0, 2000), prompt_tokens=[1] * 2000, output_tokens=1)
    node = Node("a", IterationTime.constant(1e-3), count=8, mtbf_s=50.0, mttr_s=10.0)
    run = simulate_cluster(requests, Cluster([node]), seed=3)
    account(run)
    failures = sum(n.counters["failures"] for n in run.nodes)
    # each node renews every 60 s with variance 50^2 + 10^2: 8 * 2000/60 failures
    assert abs(failures - 266.7) < 4 * 13.9  # sqrt(8 * 2000 (50^2 + 10^2)/60^3); false alarms: 6e-5
    up = np.array([n.integrals["up_ps"] for n in run.nodes]) * 1e-12 / 2000.0
    assert abs(up.mean() - 5 / 6) < 4 * 0.012  # sqrt(2 * 50^2 * 10^2/(60^3 * 2000 * 8))
    again = simulate_cluster(requests, Cluster([node]), seed=3)
    assert np.array_equal(run.node, again.node)
    assert not np.array_equal(run.node, simulate_cluster(requests, Cluster([node]), seed=4).node)


def test_slow_starts() -> None:
    """A node that starts late is given nothing before, and its iterations take `warm_factor` as long at first."""
    requests = Requests.from_arrays(arrival_s=np.arange(100) * 0.1, prompt_tokens=[8] * 100, output_tokens=1)
    time = IterationTime.constant(0.01)
    nodes = [Node("early", time), Node("late", time, start_s=3.0, warm_s=2.0, warm_factor=3.0)]
    run = simulate_cluster(requests, Cluster(nodes, router="round_robin"))
    late = run.node == 1
    assert not late[:30].any()
    assert late[30:].sum() == 35  # it does not catch up with what the other was given while it was away
    took = run.finish_ps - requests.arrival_ps
    warming = late & (requests.arrival_ps < 5 * 10**12)
    assert np.all(took[warming] == 30 * 10**9)
    assert np.all(took[late & ~warming] == 10**10)


def test_delivered_tokens_stay_delivered() -> None:
    """By hand: a node decodes the tenth token when it dies; the other prefills prompt and nine, and goes on."""
    requests = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[20])
    time = IterationTime(launch_s=0.01, token_s=1e-4)  # the prefill takes 20 ms, a decode 10.1 ms
    config = EngineConfig(token_budget=512)
    cluster = Cluster([Node("a", time, config=config), Node("b", time, config=config)], failures=[Failure("a", 0.105)])
    run = simulate_cluster(requests, cluster)
    # tokens at 20, 30.1, ..., 100.8 ms: nine; at 105 ms the tenth is lost; 109 tokens are prefilled in 20.9 ms
    assert run.moves.delivered_tokens.tolist() == [9]
    assert int(run.first_token_ps[0]) == 20 * 10**9
    assert int(run.max_gap_ps[0]) == (105_000 + 20_900 - 100_800) * 10**6
    assert int(run.finish_ps[0]) == (105_000 + 20_900 + 10 * 10_100) * 10**6
    assert run.nodes[0].counters["aborted_tokens"] == 1
    assert run.nodes[0].counters["lost_tokens"] == 108
    assert run.counters["prefill_tokens"] + run.counters["decode_tokens"] == 119 + 108
