"""Disaggregation: the split program against brute force and by hand, the link, the map of who wins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import Demand, Fixed, Independent, InputError, IterationTime
from tileq_theory.capacity import Limits, capacity
from tileq_theory.disaggregation import (
    MODES,
    KvLink,
    Pool,
    best_split,
    compare_modes,
    decode_demand,
    plot_map,
    prefill_demand,
    workload_map,
)
from tileq_theory.prefix_cache import CachedLengths

DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
ROOFLINE = IterationTime(launch_s=0.002, weight_floor_s=0.008, token_s=4e-5, kv_token_s=6e-8, pair_s=1e-9)


def request(prompt: int, output: int) -> Demand:
    return Independent(Fixed(prompt), Fixed(output)).demand(chunk_tokens=512, convention="paper")


def test_halves_add_up() -> None:
    whole = request(700, 90)
    a, b = prefill_demand(whole), decode_demand(whole)
    assert a.vector() + b.vector() == pytest.approx(whole.vector())


def test_halves_of_a_cached_prompt_add_up() -> None:
    """What others hold too is taken off the half that holds it: 200 of 600 found tokens, 9 decodes of 1000 and more."""
    whole = CachedLengths(Independent(Fixed(1000), Fixed(10)), [1000], [600], [200]).demand(chunk_tokens=256)
    a, b = prefill_demand(whole), decode_demand(whole)
    assert a.memory_iterations == (856 - 200) + (1000 - 200)  # chunks of 256 and 144 on top of 600
    assert b.memory_iterations == sum(1000 + j - 200 for j in range(1, 10))
    assert (a.slot_iterations, b.slot_iterations) == (2, 9)
    assert a.vector() + b.vector() == pytest.approx(whole.vector())
    assert (a.prefill_tokens, a.attention_pairs) == (400, sum(range(601, 1001)))


def test_a_prefill_node_holds_prompts_only() -> None:
    """120 tokens of memory are enough for prompts of 100 that are decoded elsewhere, and not for the decodes."""
    small, large = Pool(DAI, Limits(max_batch_tokens=512, kv_tokens=120)), Pool(DAI, Limits(max_batch_tokens=512))
    link = KvLink(1.0)
    assert best_split(request(100, 100), nodes=2, prefill=small, decode=large, link=link).rate_per_s > 0
    with pytest.raises(InputError):
        best_split(request(100, 100), nodes=2, prefill=large, decode=small, link=link)


def test_seven_nodes_by_hand() -> None:
    """Prompts of 2000 tokens in chunks of 1000 and 100 decodes in batches of 50, KV of 200 MB at 1 GB/s and 2 ms."""
    time = IterationTime(launch_s=1e-3, token_s=5e-5, kv_token_s=1e-7)
    pool = Pool(time, Limits(max_batch_tokens=1000, max_num_seqs=50))
    demand = Independent(Fixed(2000), Fixed(100)).demand(chunk_tokens=1000, convention="paper")
    split = best_split(demand, nodes=7, prefill=pool, decode=pool, link=KvLink(1e5, 1e9, latency_s=0.002))
    prefill = 1 / (2 * (1e-3 + 1000 * 5e-5))
    decode = 1 / (100 * (1e-3 / 50 + 5e-5) + 1e-7 * sum(2000 + j for j in range(1, 101)))
    rates = [min(n * prefill, (7 - n) * decode, min(n, 7 - n) / 0.2) for n in range(1, 7)]
    assert split.rates_per_s.tolist() == pytest.approx(rates, rel=1e-9)
    assert split.rates_per_s.tolist() == pytest.approx([5, 10, 15, 15, 10, 5])
    assert split.transfer_s == pytest.approx(0.202)
    assert (split.binding, split.prefill_nodes) == ("link", 3)


def test_split_by_hand() -> None:
    """Dai's node: a pool of either phase does 512 tokens in 153.16 ms; 12 nodes, 200:100 tokens -> 8 and 4."""
    pool = Pool(DAI, Limits(max_batch_tokens=512))
    split = best_split(request(200, 100), nodes=12, prefill=pool, decode=pool, link=KvLink(1.0))
    rate = 512 / 0.15316
    assert (split.prefill_nodes, split.decode_nodes) == (8, 4)
    assert split.rate_per_s == pytest.approx(4 * rate / 100, rel=1e-9)
    assert split.relaxed_rate_per_s == pytest.approx(12 * rate / 300, rel=1e-9)
    assert split.relaxed_prefill_nodes == pytest.approx(8.0)
    assert split.relaxed_binding == "prefill pool"  # 8 of the 12
    other = best_split(request(100, 200), nodes=12, prefill=pool, decode=pool, link=KvLink(1.0))
    assert other.relaxed_binding == "decode pool"
    assert other.relaxed_prefill_nodes == pytest.approx(4.0)
    assert capacity(DAI, request(200, 100), Limits(max_batch_tokens=512, nodes=12)).rate_per_s == pytest.approx(
        split.relaxed_rate_per_s, rel=1e-9
    )  # without any limit that binds one phase alone the tandem is no better than mixing


@given(
    prompt=st.integers(16, 8000),
    output=st.integers(2, 2000),
    nodes=st.integers(2, 40),
    gbytes=st.floats(0.05, 100.0),
    shared=st.floats(0.5, 1000.0),
)
@settings(max_examples=40, deadline=None)
def test_split_against_brute_force(prompt: int, output: int, nodes: int, gbytes: float, shared: float) -> None:
    pool = Pool(ROOFLINE, Limits(max_batch_tokens=4096, max_num_seqs=256, kv_tokens=200000))
    link = KvLink(131072, gbytes * 1e9, shared * 1e9)
    demand = request(prompt, output)
    split = best_split(demand, nodes=nodes, prefill=pool, decode=pool, link=link)
    bits = prompt * 131072
    mu_p, mu_d = split.prefill.rate_per_s, split.decode.rate_per_s

    def rate(n: float) -> float:
        return min(n * mu_p, (nodes - n) * mu_d, min(n, nodes - n) * gbytes * 1e9 / bits, shared * 1e9 / bits)

    assert split.rate_per_s == pytest.approx(max(rate(n) for n in range(1, nodes)), rel=1e-9)
    assert split.rate_per_s == pytest.approx(rate(split.prefill_nodes), rel=1e-9)
    dense = max(rate(n) for n in np.linspace(0, nodes, 4001))
    assert dense <= split.relaxed_rate_per_s * (1 + 1e-9)
    assert rate(split.relaxed_prefill_nodes) == pytest.approx(split.relaxed_rate_per_s, rel=1e-9)
    assert split.rate_per_s <= split.relaxed_rate_per_s * (1 + 1e-9)
    if split.binding == "link":  # a faster link alone must help, or tie with the pool at another split
        faster = best_split(demand, nodes=nodes, prefill=pool, decode=pool, link=KvLink(131072))
        assert faster.rate_per_s >= split.rate_per_s


def test_relaxed_rate_is_a_linear_program() -> None:
    from scipy.optimize import linprog

    pool, demand = Pool(ROOFLINE, Limits(max_batch_tokens=4096)), request(3000, 300)
    for speed in (math.inf, 10e9, 1e9):
        split = best_split(demand, nodes=7, prefill=pool, decode=pool, link=KvLink(131072, speed))
        wire = 3000 * 131072 / speed
        # columns lambda, n: lambda <= n mu_p, lambda <= (R - n) mu_d, wire lambda <= n, wire lambda <= R - n
        mu_p, mu_d = split.prefill.rate_per_s, split.decode.rate_per_s
        rows = [[1, -mu_p], [1, mu_d], [wire, -1], [wire, 1]]
        answer = linprog([-1, 0], rows, [0, 7 * mu_d, 0, 7], bounds=[(0, None), (0, 7)])
        assert split.relaxed_rate_per_s == pytest.approx(-answer.fun, rel=1e-9)


def test_slow_link_is_named_and_halves_with_its_speed() -> None:
    pool, demand = Pool(ROOFLINE, Limits(max_batch_tokens=4096)), request(3000, 300)
    slow, slower = (
        best_split(demand, nodes=8, prefill=pool, decode=pool, link=KvLink(131072, speed)) for speed in (2e8, 1e8)
    )
    assert slow.binding == slower.binding == slow.relaxed_binding == "link"
    assert slow.rate_per_s == pytest.approx(4 * 2e8 / (3000 * 131072), rel=1e-9)
    assert slower.rate_per_s == pytest.approx(slow.rate_per_s / 2, rel=1e-9)
    assert slower.transfer_s == pytest.approx(2 * slow.transfer_s)
    shared = best_split(demand, nodes=8, prefill=pool, decode=pool, link=KvLink(131072, math.inf, 1e8))
    assert shared.binding == "link" and shared.rate_per_s == pytest.approx(1e8 / (3000 * 131072))


def test_mixing_carries_at_least_what_aggregation_does() -> None:
    for tbt in (None, 0.02, 0.05):
        for prompt, output in ((2000, 50), (500, 500), (50, 1000)):
            limits = Limits(max_batch_tokens=4096, max_num_seqs=256, nodes=10, tbt_s=tbt)
            answer = compare_modes(request(prompt, output), ROOFLINE, limits, link=KvLink(131072, 25e9))
            assert answer.aggregated_per_s <= answer.mixed_per_s * (1 + 1e-9)
            best = max(answer.mixed_per_s, answer.aggregated_per_s, answer.disaggregated_per_s)
            rates = (answer.mixed_per_s, answer.aggregated_per_s, answer.disaggregated_per_s)
            assert rates[MODES.index(answer.winner)] >= best * (1 - 1e-6)


def test_a_tbt_limit_makes_disaggregation_win_and_a_slow_link_takes_it_back() -> None:
    """Dai's node, one tile only within 50 ms: mixed 128/46.75 tokens/ms; a prefill pool still runs four tiles."""
    limits, demand = Limits(max_batch_tokens=512, nodes=100, tbt_s=0.05), request(100, 100)
    fast = compare_modes(demand, DAI, limits, link=KvLink(131072))
    assert fast.mixed_per_s == pytest.approx(100 * 128 / 0.04675 / 200, rel=1e-9)
    assert fast.relaxed_per_s == pytest.approx(100 / (100 * 0.15316 / 512 + 100 * 0.04675 / 128), rel=1e-9)
    assert fast.winner == "disaggregated"
    slow = compare_modes(demand, DAI, limits, link=KvLink(131072, 1e8))
    assert slow.winner == "mixed" and slow.split.binding == "link"


def test_map_and_picture() -> None:
    grid = workload_map(
        lambda share: request(round(1000 * share), round(1000 * (1 - share))),
        DAI,
        Limits(max_batch_tokens=512, nodes=16),
        link=KvLink(131072),
        prompt_shares=[0.1, 0.5, 0.9],
        tbt_s=[0.01, 0.05, math.inf],
    )
    assert grid.winner[0].tolist() == [-1, -1, -1]  # no iteration is that short
    assert grid.winner[2].tolist() == [0, 0, 0]  # mixing is unbeaten where no limit binds one phase alone
    assert grid.winner[1, 1] == 2
    assert grid.rates_per_s[:, 0].max() == 0
    lines = grid.table().splitlines()
    assert len(lines) == 4 and lines[3].split()[1:] == ["M", "M", "M"]
    assert plot_map(grid).axes[0].get_xlabel() == "prompt tokens / all tokens"


def test_bad_input_is_named() -> None:
    pool = Pool(DAI, Limits(max_batch_tokens=512))
    with pytest.raises(InputError, match="only one phase"):
        best_split(decode_demand(request(100, 100)), nodes=4, prefill=pool, decode=pool, link=KvLink(1.0))
    with pytest.raises(InputError, match="nodes is 0"):
        best_split(request(100, 100), nodes=0, prefill=pool, decode=pool, link=KvLink(1.0))
    with pytest.raises(InputError, match="node_bytes_per_s"):
        KvLink(1.0, -1.0)
    with pytest.raises(InputError, match="bytes_per_token"):
        KvLink(0.0)
    with pytest.raises(InputError, match="prompt_shares has"):
        workload_map(lambda s: request(1, 1), DAI, Limits(), link=KvLink(1.0), prompt_shares=[1.0], tbt_s=[0.1])
    assert best_split(request(100, 100), nodes=1, prefill=pool, decode=pool, link=KvLink(1.0)).rate_per_s == 0.0
