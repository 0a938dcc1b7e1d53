"""The compiled engine against the reference, decision by decision, on random small instances.

'stepped' and 'python' are compared batch by batch; 'compiled' may jump over iterations, so there every request's times,
counts and largest gap are compared. Hypothesis shrinks what it finds; the seeded campaign runs 10^5 instances.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from differential import Decisions, Instance, draw_instance, engine_decisions, reference_decisions, smaller
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

POLICIES = (
    "static",
    "orca",
    "vllm_v0",
    "vllm_v1",
    "sarathi",
    "sjf",
    "priority",
    "aging",
    "rad",
    "slai",
    "svf",
    "theta",
)
CAMPAIGN = int(os.environ.get("TILEQ_CAMPAIGN", "100000"))


def difference(x: Instance, mode: str) -> str | None:
    """First difference between the reference and the engine in `mode`, or None."""
    engine, reference = engine_decisions(x, mode), reference_decisions(x)
    if mode == "compiled":
        engine, reference = Decisions((), engine.fates), Decisions((), reference.fates)
    return reference.first_difference(engine)


def report(x: Instance, mode: str) -> str:
    x = smaller(x, lambda y: difference(y, mode) is not None)
    return f"{mode}: reference against engine, {difference(x, mode)}\n{x}"


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_engine_decides_as_the_reference(policy: str, data: st.DataObject) -> None:
    x = draw_instance(lambda a, b: data.draw(st.integers(a, b)), policy)
    for mode in ("stepped", "compiled"):
        assert difference(x, mode) is None, report(x, mode)


@pytest.mark.parametrize("policy", POLICIES)
def test_uncompiled_engine_decides_as_the_reference(policy: str) -> None:
    for seed in range(15):
        x = draw_instance(random.Random(f"{policy} {seed}").randint, policy)
        assert difference(x, "python") is None, report(x, "python")


@pytest.mark.campaign
@pytest.mark.parametrize("policy", POLICIES)
def test_campaign_of_random_instances(policy: str) -> None:
    seeds: Callable[[], range] = lambda: range(CAMPAIGN // len(POLICIES))  # noqa: E731
    for seed in seeds():
        x = draw_instance(random.Random(f"campaign {policy} {seed}").randint, policy)
        for mode in ("stepped", "compiled"):
            assert difference(x, mode) is None, report(x, mode)
