"""Networks: traffic equations, product forms, fluid under priorities, virtual stations, slots."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import InputError, IterationTime
from tileq_theory.latency import ServiceLaw, mg1
from tileq_theory.networks import (
    AgentNetwork,
    Step,
    chain,
    fluid_path,
    fluid_rates,
    fork_join,
    fork_join_response,
    loop,
    merge,
    network_latency,
    priority_certificate,
    rybko_stolyar,
    slot_verdict,
    virtual_station,
)

RATE = 0.9 * 768 / 608
EXIT_FIRST, ENTRY_FIRST = ["ab.2", "ba.2", "ab.1", "ba.1"], ["ab.1", "ba.1", "ab.2", "ba.2"]


def test_traffic_of_a_loop_a_fork_and_their_merge() -> None:
    engines = {"A": 100.0, "B": 50.0}
    retry = loop("r", [("A", 10.0), ("B", 4.0)], again=0.6, rate_per_s=1.0, engines=engines)
    assert retry.rates_per_s == pytest.approx([2.5, 2.5])
    assert retry.loads == pytest.approx({"A": 0.25, "B": 0.2})
    fork = fork_join("f", ("A", 20.0), [("B", 5.0)] * 3, ("A", 10.0), rate_per_s=1.0, engines=engines)
    assert fork.loads == pytest.approx({"A": 0.3, "B": 0.3})
    both = merge([retry, fork])
    assert both.loads == pytest.approx({"A": 0.55, "B": 0.5})
    assert both.bottleneck == "A" and both.capacity_scale == pytest.approx(1 / 0.55)
    assert both.scaled(both.capacity_scale).loads["A"] == pytest.approx(1.0)


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 7),
    radius=st.floats(0.05, 0.95),
)
@settings(max_examples=40, deadline=None)
def test_traffic_is_the_sum_over_generations(seed: int, size: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.random((size, size))
    matrix *= radius / np.abs(np.linalg.eigvals(matrix)).max()
    names = [f"s{i}" for i in range(size)]
    steps = [Step(n, "E", 1.0, float(a)) for n, a in zip(names, rng.random(size), strict=True)]
    follows = {(a, b): float(matrix[i, j]) for i, a in enumerate(names) for j, b in enumerate(names)}
    network = AgentNetwork({"E": 1.0}, steps, follows)
    total, wave = np.zeros(size), network.arrivals_per_s
    for _ in range(2000):
        total, wave = total + wave, matrix.T @ wave
    assert network.rates_per_s == pytest.approx(total, rel=1e-9)
    assert AgentNetwork.from_graph(network.to_graph(), {"E": 1.0}).loads == pytest.approx(network.loads)


@pytest.mark.parametrize("again", [1.0, 1.5])
def test_routing_that_never_ends_is_refused(again: float) -> None:
    with pytest.raises(InputError, match="spectral radius"):
        AgentNetwork({"E": 1.0}, [Step("s", "E", 1.0, 1.0)], {("s", "s"): again})
    with pytest.raises(InputError, match="spectral radius"):
        AgentNetwork(
            {"E": 1.0}, [Step("a", "E", 1.0, 1.0), Step("b", "E", 1.0)], {("a", "b"): 2.0, ("b", "a"): again / 2}
        )
    with pytest.raises(InputError, match="again"):
        loop("r", [("E", 1.0)], again=again, rate_per_s=1.0, engines={"E": 1.0})


def test_bad_networks_are_named() -> None:
    with pytest.raises(InputError, match="did you mean alpha"):
        AgentNetwork({"alpha": 1.0}, [Step("s", "alhpa", 1.0)], {})
    with pytest.raises(InputError, match="more than once"):
        AgentNetwork({"E": 1.0}, [Step("s", "E", 1.0), Step("s", "E", 1.0)], {})
    with pytest.raises(InputError, match="work_tokens of step 's'"):
        Step("s", "E", 0.0)
    with pytest.raises(InputError, match="rate of engine"):
        AgentNetwork({"E": -1.0}, [Step("s", "E", 1.0)], {})
    with pytest.raises(InputError, match="no attribute 'engine'"):
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_node("s")
        AgentNetwork.from_graph(graph, {"E": 1.0})
    net = rybko_stolyar(rate_per_s=RATE)
    with pytest.raises(InputError, match="priority of engine"):
        fluid_rates(net, {"A": ["ab.1"], "B": ["ba.1", "ab.2"]}, np.ones(4, dtype=bool))
    with pytest.raises(InputError, match="start"):
        fluid_path(net, EXIT_FIRST, {})


def test_product_form_against_the_textbook() -> None:
    one = chain("r", [("E", 2.0)], rate_per_s=0.7, engines={"E": 2.0})
    for discipline in ("ps", "fcfs"):
        assert network_latency(one, discipline=discipline).response_s == pytest.approx(
            mg1("fifo", rate_per_s=0.7, service=ServiceLaw.exponential(1.0)).response_s, rel=1e-9
        )
    retry = loop("r", [("E", 1.0)], again=0.5, rate_per_s=0.4, engines={"E": 1.0})
    assert network_latency(retry).response_s == pytest.approx(2 * 1 / (1 - 0.8))  # two visits on average
    two = network_latency(one, discipline="fcfs", servers={"E": 2})
    assert two.response_s == pytest.approx(1 / (1 - 0.35**2))  # M/M/2: s/(1 - rho^2)
    with pytest.raises(InputError, match="without forks"):
        network_latency(fork_join("f", ("E", 1.0), [("E", 1.0)] * 2, ("E", 1.0), rate_per_s=0.1, engines={"E": 9.0}))
    with pytest.raises(InputError, match="different mean work"):
        network_latency(chain("r", [("E", 1.0), ("E", 2.0)], rate_per_s=0.1, engines={"E": 1.0}), discipline="fcfs")
    with pytest.raises(InputError, match="load of engine 'E' is 1\\.2"):
        network_latency(chain("r", [("E", 1.2)], rate_per_s=1.0, engines={"E": 1.0}))


def test_jackson_network_against_simulation() -> None:
    """A loop over two engines, Gillespie simulation, 20 replications, one 99.9 % interval (0.1 % false alarms)."""
    from scipy import stats

    network = loop("r", [("A", 1.0), ("B", 1.0)], again=0.5, rate_per_s=0.3, engines={"A": 1.0, "B": 1.25})
    rng, means = np.random.default_rng(5), []
    for _ in range(20):
        n, area, now = np.zeros(2, dtype=int), 0.0, 0.0
        kinds, gaps = rng.random(30000), rng.exponential(1.0, 30000)
        for kind, gap in zip(kinds, gaps, strict=True):
            rates = (0.3, 1.0 if n[0] else 0.0, 1.25 if n[1] else 0.0)
            total = sum(rates)
            area, now = area + n.sum() * gap / total, now + gap / total
            u = kind * total
            if u < rates[0]:
                n[0] += 1
            elif u < rates[0] + rates[1]:
                n += (-1, 1)
            else:
                n += (1, -1) if (u - rates[0] - rates[1]) < rates[2] / 2 else (0, -1)
        means.append(area / now)
    expected = sum(network_latency(network).in_engine.values())
    half = stats.t.ppf(0.9995, 19) * np.std(means, ddof=1) / math.sqrt(20)
    assert abs(np.mean(means) - expected) < half < 0.15 * expected


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_fork_join_of_two_against_a_truncated_chain(load: float) -> None:
    """Two M/M/1 fed by one Poisson stream; the mean join time by Little from the chain (n1, n2) on 160 x 160."""
    from scipy.sparse import coo_matrix, eye
    from scipy.sparse.linalg import spsolve

    top = 90 if load < 0.5 else 130
    index = np.arange(top * top).reshape(top, top)
    moves = [
        (index[:-1, :-1], index[1:, 1:], load),
        (index[1:, :], index[:-1, :], 1.0),
        (index[:, 1:], index[:, :-1], 1.0),
    ]
    rows = np.concatenate([a.ravel() for a, _, _ in moves])
    columns = np.concatenate([b.ravel() for _, b, _ in moves])
    values = np.concatenate([np.full(a.size, r) for a, _, r in moves])
    rate = coo_matrix((values, (columns, rows)), shape=(top * top,) * 2).tocsr()
    generator = rate - eye(top * top).multiply(np.asarray(rate.sum(axis=0)).ravel())
    law = np.zeros(top * top)
    law[0] = 1.0
    rest = spsolve(generator.tocsc()[1:, 1:], -generator.tocsc()[1:, 0].toarray().ravel())
    law[1:] = rest
    law = (law / law.sum()).reshape(top, top)
    # requests whose last branch is not done: the longer of the two queues
    longer = np.maximum.outer(np.arange(top), np.arange(top))
    assert fork_join_response(branches=2, rate_per_s=load, mean_service_s=1.0) == pytest.approx(
        float((law * longer).sum()) / load, rel=1e-5
    )


def test_rybko_stolyar_diverges_under_exit_priority_only() -> None:
    net = rybko_stolyar(rate_per_s=RATE)
    bad = fluid_path(net, EXIT_FIRST, {"ab.1": 20000.0}, growth_limit=80)
    assert bad.end == "growing"
    # by hand: one half-cycle multiplies the waiting queue by lambda T/n
    first, last, exit_rate = 768 / 64, RATE, 768 / 544
    t1 = 1 / (first - last)
    factor = last * (t1 + (first - exit_rate) * t1 / (exit_rate - last))
    peaks = sorted(np.concatenate([bad.peaks(0), bad.peaks(2)]))
    assert peaks[:3] == pytest.approx([20000 * factor**k for k in (1, 2, 3)], rel=1e-9)
    assert peaks[:3] == pytest.approx([85e3, 340e3, 1.4e6], rel=0.04)  # published by simulation, rounded
    good = fluid_path(net, ENTRY_FIRST, {"ab.1": 20000.0})
    assert good.end == "drained" and float(good.total.max()) == pytest.approx(22e3, rel=0.01)


def test_virtual_station_and_certificate_agree_on_rybko_stolyar() -> None:
    for load in (0.3, 0.5, 0.55, 0.6, 0.8, 0.95):
        net = rybko_stolyar(rate_per_s=load * 768 / 608)
        station = virtual_station(net, EXIT_FIRST)
        assert station.load == pytest.approx(2 * load * 544 / 608, rel=1e-12)
        certificate = priority_certificate(net, EXIT_FIRST)
        if station.load > 1:
            assert not certificate.stable
            # the mixture of drifts falls nowhere: no linear function can
            assert (certificate.mixture @ certificate.drifts >= -1e-9).all()
            assert fluid_path(net, EXIT_FIRST, {"ab.1": 1.0}, growth_limit=1e3).end == "growing"
        else:
            assert fluid_path(net, EXIT_FIRST, {"ab.1": 1.0}).end == "drained"
        assert priority_certificate(net, ENTRY_FIRST).stable


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_certificates_hold_along_trajectories(seed: int) -> None:
    """Random two-route networks: where a certificate exists, h . q falls at every corner and the fluid drains."""
    rng = np.random.default_rng(seed)
    engines = {"A": 1.0, "B": 1.0}
    a = chain(
        "a", [("A", float(rng.uniform(0.1, 1))), ("B", float(rng.uniform(0.1, 1)))], rate_per_s=0.6, engines=engines
    )
    b = chain(
        "b", [("B", float(rng.uniform(0.1, 1))), ("A", float(rng.uniform(0.1, 1)))], rate_per_s=0.6, engines=engines
    )
    net = merge([a, b])
    order = list(rng.permutation(["a.1", "a.2", "b.1", "b.2"]))
    certificate = priority_certificate(net, order)
    if max(net.loads.values()) >= 1 or virtual_station(net, order).load > 1:
        assert not certificate.stable
        return
    start = dict(zip(["a.1", "a.2", "b.1", "b.2"], rng.random(4), strict=True))
    path = fluid_path(net, order, start, corners=3000)
    if certificate.stable:
        values = path.queues @ certificate.weights
        assert (np.diff(values) <= -certificate.margin * np.diff(path.times_s) * (1 - 1e-6) + 1e-9).all()
        assert path.end == "drained"


def test_fluid_path_conserves_work_in_one_engine() -> None:
    """One engine, any order: the total work drains at 1 - rho."""
    steps = [Step("a", "E", 1.0, 0.2), Step("b", "E", 3.0, 0.1)]
    net = AgentNetwork({"E": 1.0}, steps, {})
    for order in (["a", "b"], ["b", "a"]):
        path = fluid_path(net, order, {"a": 4.0, "b": 2.0})
        assert path.times_s[-1] == pytest.approx(10.0 / 0.5)
        work = path.queues @ np.array([1.0, 3.0])
        assert work == pytest.approx(10.0 - 0.5 * path.times_s, abs=1e-9)


STREAM = {
    "slots": 100,
    "prompt_tokens": 290,
    "output_tokens": 990,
    "gap_s": 0.4675,
    "time": IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128),
}


@pytest.mark.parametrize(
    ("rule", "budget", "state"),
    [
        ("sarathi", 128, "locks in"),
        ("orca", 128, "diverges"),
        ("sarathi", 1024, "diverges"),
        ("static", 128, "freezes"),
        ("vllm", 128, "freezes"),
    ],
)
def test_slots_of_dai(rule: str, budget: int, state: str) -> None:
    verdict = slot_verdict(rule, budget=budget, **STREAM)
    assert verdict.state == state
    assert (verdict.prefill_tokens, verdict.decode_tokens) == pytest.approx((29, 99), rel=1e-12)


def test_lock_in_by_iterating_the_rule() -> None:
    """Decodes first, the rest of the tile to the prompts in order: after a while every iteration is 29 + 99."""
    waiting, left, history = [], [], []
    for iteration in range(4000):
        if iteration % 10 == 0:
            waiting.append(290)
        while len(left) + 1 > 100:  # slots: never more than 99 decode beside one prefill
            raise AssertionError("slots overflow")
        decodes, room = len(left), 128 - len(left)
        left = [n - 1 for n in left if n > 1]
        done, prefilled = 0, 0
        while waiting and room > 0:
            take = min(waiting[0], room)
            waiting[0] -= take
            room -= take
            prefilled += take
            if waiting[0] == 0:
                waiting.pop(0)
                done += 1
        left += [990] * done
        history.append((prefilled, decodes))
    assert set(history[-500:]) == {(29, 99)}


def test_slots_one_more_token_breaks_the_lock() -> None:
    assert slot_verdict("sarathi", budget=128, **{**STREAM, "prompt_tokens": 310}).state == "diverges"
    assert slot_verdict("sarathi", budget=128, **{**STREAM, "slots": 90}).state == "diverges"
    with pytest.raises(InputError, match="gap_s"):
        slot_verdict("sarathi", budget=128, **{**STREAM, "gap_s": 0.0})


def test_priority_certificates_are_proved_apart_from_their_program() -> None:
    from dataclasses import replace

    from tileq_theory.networks.exact_fluid import exact_drifts

    net = rybko_stolyar(rate_per_s=0.9 * 768 / 608)
    order = ["ab.1", "ba.1", "ab.2", "ba.2"]
    found = priority_certificate(net, order)
    assert found.stable and found.verify(net, order)
    # the exact drifts are those of the program, and a weight that is off is found out
    exact = exact_drifts(net, order)
    assert exact is not None and len(exact) > 3
    for drift in exact:
        assert np.min(np.abs(found.drifts - np.array([float(d) for d in drift])).sum(axis=1)) < 1e-9
    assert not replace(found, weights=found.weights[::-1] * np.array([1.0, -1.0, 1.0, 1.0])).verify(net, order)
    assert not replace(found, weights=np.array([1.0, 0.0, 0.0, 0.0])).verify(net, order)
    bad = ["ab.2", "ba.2", "ab.1", "ba.1"]
    assert not replace(found).verify(net, bad)
