"""Speed of clusters; run with `pytest -m bench tests/bench/test_cluster_speed.py -s`. Times are CPU seconds."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, Node, router_names, simulate_cluster
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime

pytestmark = pytest.mark.bench

LLAMA = IterationTime(
    launch_s=0.001, weight_floor_s=0.0105, token_s=6.2e-5, pair_s=2.0e-10, kv_token_s=8.6e-8, sequence_s=1e-5
)


def conversations(count: int, rate_per_s: float, seed: int) -> Requests:
    """Lengths with the means of the Azure conversation trace: prompts about 1155, outputs about 211 tokens."""
    rng = np.random.default_rng(seed)
    prompt = np.clip(rng.lognormal(np.log(1155) - 0.5 * 0.9**2, 0.9, count), 3, 14_000)
    output = np.clip(rng.gamma(1.6, 211 / 1.6, count), 1, 1_000)
    return Requests.from_arrays(
        arrival_s=rng.exponential(1 / rate_per_s, count).cumsum(),
        prompt_tokens=np.rint(prompt),
        output_tokens=np.rint(np.maximum(output, 1)),
    )


def report(line: str) -> None:
    """Show a measured figure where pytest's -s lets it through."""
    sys.stdout.write(line + "\n")


def seconds_of(requests: Requests, cluster: Cluster) -> tuple[float, str]:
    given = np.arange(len(requests)) % 997
    start = time.process_time()
    run = simulate_cluster(requests, cluster, sessions=given, prefixes=given)
    took = time.process_time() - start
    assert run.counters["finished"] == len(requests)
    steps = run.counters["iterations"]
    return took, f"{steps} iterations, {run.counters['jumped_iterations']} jumped"


@pytest.mark.parametrize("router", router_names())
def test_a_million_requests_on_sixty_four_replicas(router: str) -> None:
    config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
    cluster = Cluster([Node("gpu", LLAMA, "sarathi", config, count=64)], router=router)
    seconds_of(conversations(1000, 6.0 * 64, 1), cluster)
    took, what = seconds_of(conversations(1_000_000, 6.0 * 64, 2), cluster)
    report(f"\n{router}: 64 replicas, 10^6 requests: {took:.1f} CPU s ({what})")
    assert took < 60


def test_a_million_requests_in_two_pools() -> None:
    config = EngineConfig(token_budget=2048, max_num_seqs=128, kv_tokens=400_000)
    p, d = (Node(role, LLAMA, "sarathi", config, role=role, count=32) for role in ("prefill", "decode"))  # type: ignore[arg-type]
    cluster = Cluster([p, d], link=KvLink(131072.0, node_bytes_per_s=50e9))
    seconds_of(conversations(1000, 200.0, 1), cluster)
    took, what = seconds_of(conversations(1_000_000, 200.0, 2), cluster)
    report(f"\n32 + 32 replicas in two pools, 10^6 requests: {took:.1f} CPU s ({what})")


@pytest.mark.parametrize("router", ["random", "power_of_two", "jsq", "least_work"])
def test_cost_of_a_request_by_number_of_nodes(router: str) -> None:
    """One-token jobs, so that routing is what costs: CPU seconds a request from 8 to 2048 nodes."""
    costs = []
    for nodes in (8, 64, 512, 2048):
        count = 400_000
        rng = np.random.default_rng(nodes)
        requests = Requests.from_arrays(
            arrival_s=rng.exponential(1 / (0.7 * nodes), count).cumsum(),
            prompt_tokens=np.maximum(np.rint(rng.exponential(1e6, count)), 1),
            output_tokens=1,
        )
        config = EngineConfig(token_budget=2**31 - 2, max_num_seqs=1, sample_limit=2, gap_mode="histogram")
        cluster = Cluster([Node("s", IterationTime(token_s=1e-6), "sarathi", config, count=nodes)], router=router)
        seconds_of(requests.head(1000), cluster)
        fixed, _ = seconds_of(requests.head(1000), cluster)
        took, _ = seconds_of(requests, cluster)
        costs.append((nodes, (took - fixed) / count * 1e6))
    report(f"\n{router}: " + ", ".join(f"{n} nodes {c:.2f} us" for n, c in costs))
