"""What nodes' caches find behind routers that keep conversations together or split them: simulation against the law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tileq.routed_hits import TOGETHER
from tileq_engine import EngineConfig
from tileq_engine.cluster import Cluster, Node, simulate_cluster
from tileq_engine.conversations import Conversations as Drawn
from tileq_engine.prefix_sessions import session_keys
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Uniform
from tileq_theory.prefix_cache import Conversations, at_node

TIME = IterationTime(launch_s=2e-4, token_s=1e-6)  # a light load: nobody waits, few are resident
DRAWN = Drawn(
    turns_mean=5, system_prompts=3, system_zipf=0.5, system_tokens=64, user_tokens=Uniform(16, 80),
    answer_tokens=Uniform(20, 100), think_s=10.0,
)  # fmt: skip
# of a request's tokens the last is never in the cache, which the law's answer leaves out
LAW = Conversations(
    turns=5, system_tokens=64, user_tokens=48.0, answer_tokens=60.0, think_s=10.0, system_prompts=3, zipf=0.5,
    block_tokens=16,
)  # fmt: skip
REPLICATIONS = 10
# probability of a false alarm of one interval; what rounding may move the law by: it takes half a block of 16 tokens
# off every history, of prompts of some 500
ALARM, ROUNDED = 1e-3, 0.005


def shares(router: str, nodes: int, kv_tokens: int, rate_per_s: float, count: int) -> np.ndarray:
    """Hit share of the last two thirds of the requests, by replication."""
    found = []
    for seed in range(REPLICATIONS):
        requests = DRAWN.requests(count, rate_per_s=rate_per_s, seed=seed)
        config = EngineConfig(token_budget=4096, max_num_seqs=256, kv_tokens=kv_tokens, prefix_cache=True)
        cluster = Cluster([Node("n", TIME, "sarathi", config, count=nodes)], router=router)
        assert requests.blocks is not None
        keys = session_keys(requests.blocks)
        run = simulate_cluster(requests, cluster, seed=seed, sessions=keys, prefixes=keys)
        assert run.counters["finished"] == count
        late = slice(count // 3, None)
        found.append(run.prefix_hit_tokens[late].sum() / requests.prompt_tokens[late].sum())
    return np.array(found)


@pytest.mark.parametrize("kv_tokens", [1_000_000, 12_000])
@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("router", ["random", "jsq", "session_affinity", "prefix_affinity"])
def test_hit_share_by_router(router: str, nodes: int, kv_tokens: int) -> None:
    """Of an ample cache and of one that forgets; join shortest queue splits conversations as random routing does."""
    together = router in TOGETHER
    expected = at_node(LAW, 1 / nodes, together=together).hits(kv_tokens, 4.0).hit_share
    found = shares(router, nodes, kv_tokens, 4.0 * nodes, 4000)
    half = stats.t.ppf(1 - ALARM / 2, REPLICATIONS - 1) * found.std(ddof=1) / np.sqrt(REPLICATIONS)
    assert half < 0.08
    assert abs(found.mean() - expected) <= half + ROUNDED, (found.mean(), expected, half)


def test_splitting_costs_what_the_law_says() -> None:
    """Found tokens fall with the number of nodes for random routing, and do not for affinity."""
    by_law = [at_node(LAW, 1 / n, together=False).hits(None).hit_share for n in (1, 2, 5, 20)]
    assert by_law == sorted(by_law, reverse=True)
    split = shares("random", 5, 1_000_000, 20.0, 3000).mean()
    kept = shares("prefix_affinity", 5, 1_000_000, 20.0, 3000).mean()
    assert kept - split > 0.2
    assert kept == pytest.approx(LAW.hits(None).hit_share, abs=0.03)
