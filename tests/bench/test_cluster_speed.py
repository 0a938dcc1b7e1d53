"""Speed of clusters; run with `pytest -m bench tests/bench/test_cluster_speed.py -s`. Times are CPU seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

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


NODES = (1, 4, 16, 64, 256, 1024)
CONSTANT = ("power_of_two", "session_affinity", "tenant", "prefix_affinity")


def one_token_jobs(router: str, nodes: int, count: int) -> tuple[Requests, Cluster]:
    """Jobs of one token and exponential times at a load of .7, so that routing is what costs."""
    rng = np.random.default_rng(nodes)
    requests = Requests.from_arrays(
        arrival_s=rng.exponential(1 / (0.7 * nodes), count).cumsum(),
        prompt_tokens=np.maximum(np.rint(rng.exponential(1e6, count)), 1),
        output_tokens=1,
    )
    config = EngineConfig(token_budget=2**31 - 2, max_num_seqs=1, sample_limit=2, gap_mode="histogram")
    node = Node("s", IterationTime(token_s=1e-6), "sarathi", config, count=nodes)
    return requests, Cluster([node], router=router)


def timed(requests: Requests, cluster: Cluster) -> tuple[float, dict[str, int]]:
    given = np.arange(len(requests)) % 997
    start = time.process_time()
    run = simulate_cluster(requests, cluster, sessions=given, prefixes=given)
    return time.process_time() - start, dict(run.counters)


@pytest.mark.parametrize("router", router_names())
def test_cost_of_a_request_by_number_of_nodes(router: str) -> None:
    """Set-up of a node and cost of a request apart: a line through runs of few and of many requests.

    All sizes in one process, in turn, three times round, and the least of each, so that another program's share of the
    machine falls on all alike. What a request costs in counted work has no noise; its time grows a little beyond that
    with what no longer fits the processor's caches.
    """
    few, many = 2_000, 200_000
    cases = {nodes: one_token_jobs(router, nodes, many) for nodes in NODES}
    times = {nodes: [np.inf, np.inf] for nodes in NODES}
    work = {}
    for _ in range(3):
        for nodes, (requests, cluster) in cases.items():
            for k, count in enumerate((few, many)):
                took, work[nodes] = timed(requests.head(count), cluster)
                times[nodes][k] = min(times[nodes][k], took)
    report(f"\n{router:16s} {'nodes':>6s} {'us/request':>11s} {'us/node':>9s} {'looks':>6s} {'comparisons':>12s}")
    costs = {}
    for nodes, (short, long) in times.items():
        costs[nodes] = (long - short) / (many - few)
        setup = max(short - few * costs[nodes], 0.0) / nodes
        looks, compared = (work[nodes]["touches"] - nodes) / many, work[nodes]["comparisons"] / many
        report(f"{'':16s} {nodes:6d} {1e6 * costs[nodes]:11.2f} {1e6 * setup:9.0f} {looks:6.2f} {compared:12.2f}")
        assert compared <= (3.1 if router in CONSTANT else 6.5 * np.log2(max(nodes, 2)) + 8)
        assert looks <= 4.0
    # of counted work power of two has as much at 1024 nodes as at 16; time may grow by the caches' misses alone
    assert costs[1024] < (3.0 if router in CONSTANT else 6.0) * costs[16]


MEMORY = """
import sys
import numpy as np
sys.path.insert(0, {folder!r})
from test_cluster_speed import LLAMA, conversations
from tileq_engine import EngineConfig
from tileq_engine.cluster import Cluster, Node, simulate_cluster
config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
requests = conversations({count}, 6.0 * 64, 2)
run = simulate_cluster(requests, Cluster([Node("gpu", LLAMA, "sarathi", config, count=64)], router="power_of_two"))
assert run.counters["finished"] == {count}
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_memory_of_a_million_requests_on_sixty_four_replicas() -> None:
    """Peak resident memory of a process of its own, less that of a run of a thousandth: bytes a request."""
    peaks = []
    for count in (1_000, 1_000_000):
        script = MEMORY.format(folder=str(Path(__file__).parent), count=count)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        peaks.append(1024 * int(done.stdout.split()[-1]))  # of this program alone: what a fork began with is not in it
    each = (peaks[1] - peaks[0]) / 999_000
    report(f"\n64 replicas, 10^6 requests: peak {peaks[1] / 1e9:.2f} GB, {each:.0f} bytes a request")
    assert peaks[1] < 2e9
