"""Kimura's two-moment formula of M/G/c: its own form, its exact ends, and its order beside Lee and Longton."""

from __future__ import annotations

import math

import pytest

from tileq_theory.flow_control import mean_queue
from tileq_theory.latency import many_servers


@pytest.mark.parametrize("servers", [2, 4, 9])
@pytest.mark.parametrize("load", [0.3, 0.75, 0.95])
@pytest.mark.parametrize("scv", [0.0, 0.5, 1.0, 4.0, 50.0])
def test_the_formula_joins_constant_and_exponential_service_harmonically(servers: int, load: float, scv: float) -> None:
    offered = load * servers

    def waiting(variation: float) -> float:
        return many_servers(rate_per_s=offered, servers=servers, mean_service_s=1.0, scv=variation).waiting_s

    constant = mean_queue(offered, servers) / offered
    assert math.isclose(waiting(0.0), constant, rel_tol=1e-12)
    expected = (1 + scv) / (2 * scv / waiting(1.0) + (1 - scv) / constant)
    assert expected > 0 and math.isclose(waiting(scv), expected, rel_tol=1e-12)


def test_one_server_is_pollaczek_khinchine_at_every_variation() -> None:
    for scv in (0.0, 0.3, 1.0, 7.0):
        found = many_servers(rate_per_s=0.8, servers=1, mean_service_s=1.0, scv=scv)
        assert math.isclose(found.waiting_s, 0.8 * (1 + scv) / 2 / 0.2, rel_tol=1e-9)
