"""The compiled engine against the reference, decision by decision, on random small instances of every policy.

'stepped' and 'python' are compared batch by batch; 'compiled' may jump over iterations, so there every request's times,
counts and largest gap are compared with the reference, and areas, gap sums and counters with 'stepped'. Each instance
also has to keep the laws of conservation (`campaign.broken_law`), and the engine recomputes its invariants at every
iteration. Hypothesis shrinks what it finds; the seeded campaign (-m campaign) runs 10^5 instances over the policies.
"""

from __future__ import annotations

import os

import pytest
from campaign import campaign, described, fault, instance
from differential_draw import EVERY_POLICY, draw_instance
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CAMPAIGN = int(os.environ.get("TILEQ_CAMPAIGN", "100000"))  # instances, over all policies
_PREFIX = ("prefix_hit_tokens", "prefix_evicted_blocks", "prefix_merged_blocks")
QUICK = 40  # seeds a policy in the normal run


def test_no_policy_is_left_out() -> None:
    from tileq_engine.registry import policy_names

    assert sorted(policy_names()) == sorted(EVERY_POLICY)


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(data=st.data())
def test_engine_decides_as_the_reference(policy: str, data: st.DataObject) -> None:
    x = draw_instance(lambda a, b: data.draw(st.integers(a, b)), policy)
    assert not fault(x), described(x, uncompiled=False)


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_three_modes_and_the_reference(policy: str) -> None:
    tally = campaign(policy, range(10**6, 10**6 + QUICK), uncompiled_every=4)
    assert tally.failures == []
    assert tally.instances == QUICK and tally.uncompiled == QUICK // 4


def test_the_space_reaches_what_it_should() -> None:
    """A space of instances is worth something only if preemption, swap, rejection and stalls occur in it."""
    tally = campaign("sarathi", range(2 * 10**6, 2 * 10**6 + 150), uncompiled_every=1000)
    for name in ("preemptions", "swapped_tokens", "recomputed_tokens", "rejected", "engine", "paper", "none", *_PREFIX):
        assert tally.seen[name] >= 5, (name, tally.seen)


@pytest.mark.campaign
@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_campaign_of_random_instances(policy: str) -> None:
    tally = campaign(policy, range(-(-CAMPAIGN // len(EVERY_POLICY))))
    assert not tally.failures, (
        "\n".join(tally.failures) + "\n" + described(instance(policy, int(tally.failures[0].split(":")[0].split()[-1])))
    )
