"""How many nodes a rate takes, what a node and the link are worth, and KV of cached prompts on the wire."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.capacity import Limits
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import KvLink, Pool, best_split, nodes_for, rate_of
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Independent
from tileq_theory.prefix_cache import share_cached

TIME = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
DEMAND = Demand(100, 300, 75150, 5050, 75250, 301, 100, 400)
POOL = Pool(TIME, Limits(max_batch_tokens=512))


@settings(max_examples=40)
@given(rate=st.floats(0.5, 300), load=st.sampled_from([0.5, 0.9, 1.0]), port=st.floats(5e7, 1e11))
def test_the_nodes_for_a_rate_are_enough_and_one_less_is_not(rate: float, load: float, port: float) -> None:
    link = KvLink(131072, node_bytes_per_s=port)
    split = best_split(DEMAND, nodes=2, prefill=POOL, decode=POOL, link=link)
    prefill, decode = nodes_for(split, DEMAND, link, rate, load=load)
    assert load * rate_of(split, DEMAND, link, prefill, decode) >= rate * (1 - 1e-9)
    for fewer in ((prefill - 1, decode), (prefill, decode - 1)):
        assert load * rate_of(split, DEMAND, link, *fewer) < rate * (1 + 1e-9)


@settings(max_examples=8)
@given(port=st.floats(1e8, 1e10), shared=st.floats(1e8, 1e11), nodes=st.integers(2, 30))
def test_prices_are_finite_differences(port: float, shared: float, nodes: int) -> None:
    def solve(more: float, count: int) -> float:
        link = KvLink(131072, node_bytes_per_s=more * port, shared_bytes_per_s=more * shared)
        return best_split(DEMAND, nodes=count, prefill=POOL, decode=POOL, link=link).relaxed_rate_per_s

    link = KvLink(131072, node_bytes_per_s=port, shared_bytes_per_s=shared)
    split = best_split(DEMAND, nodes=nodes, prefill=POOL, decode=POOL, link=link)
    step = 1e-6
    up = math.log(solve(1 + step, nodes) / solve(1, nodes)) / step
    down = math.log(solve(1, nodes) / solve(1 - step, nodes)) / step
    assert min(up, down) - 1e-3 <= split.link_elasticity <= max(up, down) + 1e-3
    gained = [solve(1, nodes + 1) - solve(1, nodes), solve(1, nodes) - solve(1, nodes - 1)]
    assert min(gained) - 1e-6 <= split.node_price_per_s <= max(gained) + 1e-6
    assert 0 < split.link_use <= 1 + 1e-9


def test_a_cached_prompt_travels_whole() -> None:
    """A hit spares the prefill node its work, not the link its bytes."""
    whole = Independent(Fixed(1000), Fixed(100))
    link = KvLink(1000, node_bytes_per_s=1e8)
    rates = []
    for law in (whole, share_cached(whole, 0.9)):
        demand = law.demand(chunk_tokens=512, counting="least")
        split = best_split(demand, nodes=8, prefill=POOL, decode=POOL, link=link)
        rates.append(split.prefill.rate_per_s)
        assert split.transfer_s == pytest.approx(0.01)
    assert rates[1] > 5 * rates[0]


def test_a_fabric_too_slow_gets_one_line() -> None:
    link = KvLink(131072, shared_bytes_per_s=1e6)
    split = best_split(DEMAND, nodes=2, prefill=POOL, decode=POOL, link=link)
    with pytest.raises(InputError, match="the shared fabric carries"):
        nodes_for(split, DEMAND, link, 10.0)
    with pytest.raises(InputError, match="load is 2"):
        nodes_for(split, DEMAND, link, 1e-3, load=2.0)
