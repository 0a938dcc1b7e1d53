"""Prefill and decode pools joined by a link: by hand, against the link's law, and against the capacity programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, ClusterRun, Node, placement_weights, simulate_cluster
from tileq_engine.cluster.placement import node_limits, node_rates
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import KvLink, Pool, best_split
from tileq_theory.iteration_time import IterationTime

LLAMA = IterationTime(launch_s=1e-3, weight_floor_s=8e-3, token_s=6e-5, pair_s=2e-10, kv_token_s=8e-8, sequence_s=1e-5)
FAST = KvLink(bytes_per_token=131072.0, node_bytes_per_s=400e9, latency_s=1e-5)


def pools(prefill: Node, decode: Node, link: KvLink = FAST, **settings: Any) -> Cluster:
    return Cluster([prefill, decode], link=link, **settings)


def demand_of(prompt: int, output: int, chunk: int = 1024) -> Demand:
    """Of requests of one length under the engine's convention, prefilled in chunks of at most `chunk`."""
    decodes = output - 1
    read = decodes * prompt + decodes * (decodes + 1) // 2
    held = [min(chunk * (k + 1), prompt) for k in range(-(-prompt // chunk))]
    pairs = prompt * (prompt + 1) / 2
    return Demand(prompt, decodes, read, pairs, sum(held) + read, len(held) + decodes, prompt, prompt + output)


def poisson(rate: float, count: int, prompt: int, output: int, seed: int = 1) -> Requests:
    arrival = np.random.default_rng(seed).exponential(1 / rate, count).cumsum()
    return Requests.from_arrays(arrival_s=arrival, prompt_tokens=[prompt] * count, output_tokens=[output] * count)


def test_one_request_by_hand() -> None:
    time = IterationTime(launch_s=0.01, token_s=1e-4)
    requests = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[3])
    link = KvLink(bytes_per_token=1e6, node_bytes_per_s=1e10, latency_s=5e-3)
    config = EngineConfig(token_budget=512)
    nodes = [Node("p", time, config=config, role="prefill"), Node("d", time, config=config, role="decode")]
    run = simulate_cluster(requests, Cluster(nodes, link=link), mode="python")
    assert int(run.first_token_ps[0]) == 20 * 10**9  # the prefill's end
    assert run.transfers.end_ps.tolist() == [(20 + 10 + 5) * 10**9]
    assert int(run.finish_ps[0]) == 35 * 10**9 + 2 * 10_100 * 10**6
    assert (run.node.tolist(), run.prefill_node.tolist()) == ([1], [0])
    assert run.transfers.blocks.tolist() == [7]


def test_the_shared_link_is_a_fifo_server() -> None:
    """With Poisson hand-overs of one size it is M/D/1: mean wait rho/(2 (1 - rho)) of a transfer (Pollaczek)."""
    rho, transfer_s = 0.7, 0.01
    instant = IterationTime(token_s=1e-12)
    link = KvLink(bytes_per_token=1.0, shared_bytes_per_s=100 / transfer_s)
    config = EngineConfig(token_budget=100_000, max_num_seqs=1000, sample_limit=2)
    means = []
    for seed in range(12):
        requests = poisson(rho / transfer_s, 12_000, 100, 2, seed)
        nodes = [Node("p", instant, config=config, role="prefill"), Node("d", instant, config=config, role="decode")]
        sent = simulate_cluster(requests, Cluster(nodes, link=link)).transfers
        kept = slice(1500, None)
        means.append(float((sent.end_ps - sent.ready_ps)[kept].mean()) * 1e-12 - transfer_s)
    half = student.ppf(1 - 0.5e-4, 11) * np.std(means, ddof=1) / np.sqrt(12)
    law = rho / (2 * (1 - rho)) * transfer_s
    assert abs(np.mean(means) - law) <= half, (np.mean(means), law, half)
    assert half < 0.2 * law


def test_a_full_decode_pool_holds_the_prefill_side() -> None:
    """One seat for decoding: blocks stay held where the prefill was, prefills stop when the cache is full of them."""
    requests = Requests.from_arrays(arrival_s=np.zeros(40), prompt_tokens=[60] * 40, output_tokens=[30] * 40)
    time = IterationTime(launch_s=1e-3, token_s=1e-5)
    prefill = EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=640, check=True)
    decode = EngineConfig(token_budget=64, max_num_seqs=1, kv_tokens=640, check=True)
    run = simulate_cluster(requests, pools(Node("p", time, "vllm_v1", prefill, role="prefill"),
                                           Node("d", time, "vllm_v1", decode, role="decode")))  # fmt: skip
    assert run.counters["finished"] == 40
    assert run.counters["peak_waiting_for_decode"] == 10  # 40 blocks, 4 a request
    assert run.nodes[0].counters["peak_kv_blocks"] == 40
    assert run.nodes[1].counters["peak_running"] == 1
    _, waiting = run.waiting_for_decode()
    assert waiting.max() == 10  # the one whose KV is on its way included: its blocks are held until it has arrived
    assert run.counters["prefill_tokens"] == 40 * 60


def test_three_kinds_of_cluster_run_the_same_requests() -> None:
    requests = poisson(30.0, 400, 300, 40)
    config = EngineConfig(token_budget=512, max_num_seqs=32, kv_tokens=60_000, check=True)
    both = Node("both", LLAMA, "sarathi", config, count=4)
    p, d = (Node(role, LLAMA, "sarathi", config, role=role, count=2) for role in ("prefill", "decode"))  # type: ignore[arg-type]
    clusters = [
        Cluster([both]),
        Cluster([p, d], link=FAST),
        Cluster([Node("both", LLAMA, "sarathi", config), p, d], link=FAST),
    ]
    for cluster in clusters:
        run = simulate_cluster(requests, cluster)
        assert run.counters["finished"] == 400
        assert run.counters["prefill_tokens"] + run.counters["decode_tokens"] == 400 * 339
        assert run.to_dict()["ttft_s"]["mean"] > 0
        assert len(run.transfers) == int((run.prefill_node >= 0).sum())
    assert 0 < len(run.transfers) < 400  # the mixed one sent some over and kept some


# -------------------------------------------------------------------- capacity


def even(rate: float, seconds: float, prompt: int, output: int) -> Requests:
    """Requests at even gaps: what grows is not the arrivals' chance."""
    count = int(rate * seconds)
    return Requests.from_arrays(
        arrival_s=np.arange(count) / rate, prompt_tokens=[prompt] * count, output_tokens=[output] * count
    )


def slope(run: ClusterRun, waiting: np.ndarray, seconds: np.ndarray) -> float:
    """Growth of a queue in its second half of the arrivals, requests per second."""
    last = run.requests.arrival_ps[-1] * 1e-12
    kept = (seconds > 0.4 * last) & (seconds < 0.98 * last)
    return float(np.polyfit(seconds[kept], waiting[kept], 1)[0])


def served(run: ClusterRun) -> float:
    """Requests finished per second while requests arrive, the first third left out."""
    last = int(run.requests.arrival_ps[-1])
    return float(((run.finish_ps > last // 3) & (run.finish_ps <= last)).sum() / (last * 2 / 3 * 1e-12))


@pytest.mark.parametrize("bound", ["prefill pool", "decode pool"])
def test_pools_reach_their_program_and_the_binding_one_grows(bound: str) -> None:
    prompt, output = (800, 160) if bound == "prefill pool" else (300, 320)
    budget = EngineConfig(token_budget=1024, max_num_seqs=64)
    p = Node("p", LLAMA, "sarathi", budget, role="prefill", count=1 if bound == "prefill pool" else 2)
    d = Node("d", LLAMA, "sarathi", budget, role="decode", count=2 if bound == "prefill pool" else 1)
    demand = demand_of(prompt, output)
    split = best_split(
        demand, nodes=3, prefill=Pool(LLAMA, node_limits(p)), decode=Pool(LLAMA, node_limits(d)), link=FAST
    )
    own = node_rates(pools(p, d), demand) * [p.count, d.count]
    capacity = float(own.min())
    named = ("prefill pool", "decode pool")[int(own.argmin())]
    assert named == bound
    if (split.prefill_nodes, split.decode_nodes) == (p.count, d.count):
        assert split.rate_per_s == pytest.approx(capacity)
        assert split.binding == bound
    over = simulate_cluster(even(1.08 * capacity, 60.0, prompt, output), pools(p, d))
    assert abs(served(over) / capacity - 1) <= 0.03, (served(over), capacity)
    seconds, entry = over.pool_path("prefill")
    _, handed = over.waiting_for_decode()
    growth = {"prefill pool": slope(over, entry, seconds), "decode pool": slope(over, handed, seconds)}
    other = ({*named_pools()} - {bound}).pop()
    assert growth[bound] > 0.04 * capacity, growth
    assert growth[other] < 0.01 * capacity, growth
    under = simulate_cluster(even(0.95 * capacity, 60.0, prompt, output), pools(p, d))
    assert abs(served(under) / (0.95 * capacity) - 1) < 0.06
    assert slope(under, under.pool_path("prefill")[1], under.pool_path("prefill")[0]) < 0.02 * capacity


def named_pools() -> tuple[str, str]:
    return "prefill pool", "decode pool"


def test_a_cluster_of_unlike_replicas_reaches_the_sum_of_its_programs() -> None:
    """Weights from the capacity program share the load so that every node is as near to its own capacity."""
    prompt, output = 500, 100
    config = EngineConfig(token_budget=512, max_num_seqs=64)
    slow = IterationTime(launch_s=2e-3, weight_floor_s=16e-3, token_s=1.2e-4, kv_token_s=1.6e-7)
    plain = Cluster([Node("a", LLAMA, "sarathi", config, count=2), Node("b", slow, "sarathi", config, count=2)])
    demand = demand_of(prompt, output)
    capacity = float(node_rates(plain, demand) @ [2, 2])
    for router in ("round_robin", "jsq", "least_work"):
        cluster = placement_weights(plain, demand).with_(router=router)
        run = simulate_cluster(even(1.1 * capacity, 90.0, prompt, output), cluster)
        assert abs(served(run) / capacity - 1) <= 0.03, (router, served(run), capacity)
        assert run.node_load().busy_share.min() > 0.97
    alike = simulate_cluster(even(0.97 * capacity, 90.0, prompt, output), plain.with_(router="random"))
    shared = simulate_cluster(even(0.97 * capacity, 90.0, prompt, output), placement_weights(plain, demand))
    assert np.percentile(shared.first_token_ps - shared.requests.arrival_ps, 90) < 0.5 * np.percentile(
        alike.first_token_ps - alike.requests.arrival_ps, 90
    )
