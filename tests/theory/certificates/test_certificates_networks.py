"""Certificates over random two-station networks whose stability is known from the literature.

Exit-class priority (Rybko and Stolyar) and Lu and Kumar's network: stable exactly when both nominal loads and the
virtual station's are below 1, under that priority and over all work-conserving policies (Dai and Vande Vate, 2000).
Entry-class priority: when the nominal loads are.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import InputError
from tileq_theory.certificates import FluidModes, Mode, PriorityNetwork, ServiceClass, certify, lu_kumar, rybko_stolyar


def random_network(draw: random.Random) -> tuple[PriorityNetwork, bool]:
    """Return a network and whether it is stable."""
    services = [Fraction(draw.randint(1, 80), 100) for _ in range(4)]
    rates = (Fraction(draw.randint(40, 150), 100), Fraction(draw.randint(40, 150), 100))
    kind = draw.choice(["exit", "entry", "line", "any line", "any crossing"])
    if kind.endswith("line"):
        priority = None if kind.startswith("any") else (3, 1, 0, 2)
        network = lu_kumar(rate=rates[0], services=services, priority=priority)
    else:
        network = rybko_stolyar(rates=rates, services=services, exit_first=kind == "exit")
        if kind == "any crossing":
            network = replace(network, priority=None)
    loads = list(network.loads().values())
    if kind != "entry":
        loads.append(network.virtual_load([1, 3]))
    if Fraction(1) in loads:
        return random_network(draw)
    return network, max(loads) < 1


def verdicts(count: int, seed: int) -> Counter[tuple[bool, str]]:
    """Certify `count` networks, half of them stable; every certificate is verified, none may be wrong."""
    draw, seen = random.Random(seed), Counter[tuple[bool, str]]()
    stable = 0
    while sum(seen.values()) < count:
        network, truth = random_network(draw)
        if truth != (stable < count // 2):
            continue
        stable += truth
        model = network.modes()
        proof = certify(model)
        assert proof.verify(model)
        assert proof.verdict in ("undecided", "stable" if truth else "unstable"), (network, proof)
        seen[truth, proof.verdict] += 1
    return seen


def test_thirty_random_networks(record_property: pytest.FixtureRequest) -> None:
    seen = verdicts(30, seed=7)
    undecided = sum(n for (_, verdict), n in seen.items() if verdict == "undecided") / 30
    record_property("undecided share", undecided)  # type: ignore[operator]
    assert undecided <= 0.1


@pytest.mark.campaign
def test_two_hundred_random_networks(record_property: pytest.FixtureRequest) -> None:
    """200 networks, 100 stable and 100 unstable; the undecided share is printed and kept."""
    seen = verdicts(200, seed=20)
    undecided = sum(n for (_, verdict), n in seen.items() if verdict == "undecided") / 200
    record_property("undecided share", undecided)  # type: ignore[operator]
    print(dict(seen), undecided)  # noqa: T201
    assert undecided <= 0.05


def test_dais_rybko_stolyar_network_diverges_fourfold_each_half_cycle() -> None:
    # arXiv 2504.07347, section 5.4: peaks near 85 k, 340 k, 1.4 M tokens
    rate = Fraction(9, 10) * Fraction(768, 608)
    services = (Fraction(64, 768), Fraction(544, 768))
    network = rybko_stolyar(rates=(rate, rate), services=services)
    assert network.loads() == {"A": Fraction(9, 10), "B": Fraction(9, 10)}
    model = network.modes()
    proof = certify(model)
    assert proof.verdict == "unstable" and proof.cycle is not None
    assert abs(float(proof.cycle.factor) ** 0.5 - 4.135) < 0.001
    # by hand: x jobs of class 0 drain at 1/m0 - a, class 1 gains 1/m0 - 1/m1, ... the ratio of one half-cycle
    a, m0, m1 = rate, *services
    gone = 1 / (1 / m0 - a)
    left = gone * (1 / m0 - 1 / m1)
    emptied = gone + left / (1 / m1 - a)
    assert proof.cycle.factor == (emptied * a) ** 2
    other = rybko_stolyar(rates=(rate, rate), services=services, exit_first=False)
    assert certify(other.modes()).verdict == "stable"


def test_exactly_at_the_virtual_boundary_nothing_is_claimed() -> None:
    network = lu_kumar(rate=1, services=[Fraction(1, 10), Fraction(1, 2), Fraction(1, 10), Fraction(1, 2)])
    assert network.virtual_load([1, 3]) == 1
    assert certify(network.modes()).verdict == "undecided"


def test_three_classes_one_station_by_load() -> None:
    def network(load: Fraction) -> PriorityNetwork:
        classes = tuple(ServiceClass("A", load / 3 / r, r) for r in (1, 2, 3))
        return PriorityNetwork(classes, (2, 0, 1))

    assert certify(network(Fraction(99, 100)).modes()).verdict == "stable"
    assert certify(network(Fraction(101, 100)).modes()).verdict == "unstable"


@given(
    st.lists(st.fractions(Fraction(1, 20), Fraction(4, 5), max_denominator=40), min_size=4, max_size=4),
    st.fractions(Fraction(1, 1000), 1000, max_denominator=1000).filter(lambda x: x > 0),
    st.permutations(range(4)),
)
@settings(max_examples=25, deadline=None)
def test_the_verdict_knows_neither_the_unit_of_time_nor_the_names(
    services: list[Fraction], unit: Fraction, order: list[int]
) -> None:
    network = lu_kumar(rate=1, services=services)
    slower = lu_kumar(rate=1 / unit, services=[unit * m for m in services])
    place = {old: new for new, old in enumerate(order)}
    renamed = PriorityNetwork(
        tuple(
            replace(c, following=None if c.following is None else place[c.following])
            for c in (network.classes[old] for old in order)
        ),
        tuple(place[k] for k in network.priority),
    )
    plain = certify(network.modes()).verdict
    assert certify(slower.modes()).verdict == plain
    assert certify(renamed.modes()).verdict == plain


def test_a_tampered_certificate_does_not_verify() -> None:
    good = lu_kumar(rate=1, services=[0.45, 0.45, 0.45, 0.45], priority=None).modes()
    proof = certify(good)
    assert len(proof.weights) == 2 and proof.verify(good)
    assert not replace(proof, weights=proof.weights[:1]).verify(good)
    assert not replace(proof, weights=tuple(tuple(w * Fraction(1, 2) for w in r) for r in proof.weights)).verify(good)
    assert not replace(proof, weights=tuple(tuple(-w for w in r) for r in proof.weights)).verify(good)
    bad = lu_kumar(rate=1, services=[0.1, 0.6, 0.1, 0.6]).modes()
    assert not proof.verify(bad)
    grows = certify(bad)
    assert grows.cycle is not None and grows.verify(bad) and not grows.verify(good)
    assert not replace(grows, cycle=replace(grows.cycle, factor=grows.cycle.factor + 1)).verify(bad)
    assert not replace(grows, cycle=replace(grows.cycle, legs=grows.cycle.legs[1:])).verify(bad)
    assert grows.direction is not None and not replace(grows, shares=None).verify(bad)
    overload = lu_kumar(rate=1, services=[0.6, 0.1, 0.1, 0.6]).modes()
    above = certify(overload)
    assert above.growth is not None and above.verify(overload)
    assert not replace(above, growth=tuple(v / 2 for v in above.growth)).verify(overload)


def test_the_time_to_drain_is_bounded_by_the_function() -> None:
    # a path of the stable network, followed exactly, is at the origin before V(x(0))
    from tileq_theory.certificates.cycle import next_modes, run_mode

    model = lu_kumar(rate=1, services=[Fraction(1, 10), Fraction(2, 5), Fraction(1, 10), Fraction(2, 5)]).modes()
    proof = certify(model)
    for start in [(1, 0, 0, 0), (0, 0, 0, 1), (3, 1, 4, 1)]:
        state, time = tuple(Fraction(x) for x in start), Fraction(0)
        bound = proof.value(start)
        for _ in range(200):
            if float(sum(state)) < 1e-9:
                break
            step = run_mode(model.modes[next_modes(model, state)[0]], state)
            assert step is not None
            time, state = time + step[0], step[1]
            assert proof.value(state) + time <= bound
        assert float(sum(state)) < 1e-9


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ServiceClass("A", 0), "service of class 0"),
        (lambda: ServiceClass("A", -1), "service of class 0"),
        (lambda: ServiceClass("A", 1, -1), "arrivals of class 0"),
        (lambda: ServiceClass("A", float("nan")), "service of class 0"),
        (lambda: ServiceClass("A", 1, 1, 0), "never leaves"),
        (lambda: ServiceClass("A", 1, 1, 5), "turns into 5"),
    ],
)
def test_networks_that_cannot_be(build: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PriorityNetwork((build(),), (0,))  # type: ignore[operator]


def test_modes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="no mode"):
        FluidModes(("x",), ())
    with pytest.raises(InputError, match="coordinates"):
        FluidModes(("x", "y"), (Mode("m", [1]),))
    with pytest.raises(InputError, match="finite"):
        Mode("m", [float("inf")])
    with pytest.raises(InputError, match="pieces"):
        certify(FluidModes(("x",), (Mode("m", [-1]),)), pieces=0)
