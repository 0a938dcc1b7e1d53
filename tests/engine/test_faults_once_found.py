"""Faults that a campaign once found, each pinned by an instance that shows it again should it come back.

The instances were checked against the faulty code: each of them tells it from the reference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from campaign import fault, instance
from differential import reference_decisions
from differential_draw import Instance

from tileq_theory.iteration_time import IterationTime

_REQUEST = {"output": 8, "predicted": 17, "paying": 0, "tbt_limit": 0}

# The second request is the more urgent one. Its gate was asked for the 20 tokens that the first one's decode leaves
# of the budget of 21; admitting it preempts the first, whose token must not be added to the chunk.
URGENT = Instance(
    policy="priority",
    params={"preemptive": True, "base": "vllm_v1"},
    requests=(
        {**_REQUEST, "arrival": 1_800_000_000, "prompt": 43, "priority": 2, "kind": 1},
        {**_REQUEST, "arrival": 3_600_000_000, "prompt": 34, "priority": 0, "kind": 0},
    ),
    time=IterationTime(
        launch_s=3.1e-4,
        weight_floor_s=1e-4,
        tile_s=2e-4,
        tile_tokens=7,
        token_s=1e-5,
        kv_token_s=3.9e-8,
        kv_counts_prefill=True,
    ),
    budget=21,
    max_seqs=6,
    kv_blocks=4,
    watermark=1,
    convention="paper",
    preemption="recompute",
    swap_us_per_token=2,
    queue_limit=None,
    longest=None,
    oversize="reject",
)


def test_a_preempting_chunk_is_the_one_its_gate_was_asked_for() -> None:
    assert fault(URGENT, uncompiled=True) == ""
    batches = [members for _, _, members in reference_decisions(URGENT).iterations]
    assert batches[2][-1] == (1, 20, False), batches


@pytest.mark.parametrize("seed", [49, 52, 65, 67, 70, 122])
def test_preempting_chunks_of_the_campaign(seed: int) -> None:
    assert fault(instance("priority", seed), uncompiled=True) == ""


@pytest.mark.parametrize("base", ["vllm_v1", "sarathi"])
def test_without_preemption_not_even_priority_preempts(base: str) -> None:
    calm: Instance = replace(URGENT, preemption="none", params={"preemptive": True, "base": base})
    assert fault(calm, uncompiled=True) == ""
    assert not any(f["preemptions"] for f in reference_decisions(calm).fates)


def few(policy: str, params: dict[str, Any], sizes: tuple[tuple[int, int, int], ...]) -> Instance:
    """Small requests (arrival in ms, prompt, output) of one class on ample memory, three slots, a budget of 8."""
    asked = tuple(
        {**_REQUEST, "arrival": at * 10**9, "prompt": prompt, "output": output, "priority": 0, "kind": 0}
        for at, prompt, output in sizes
    )
    return replace(
        URGENT,
        policy=policy,
        params=params,
        requests=asked,
        kv_blocks=50,
        watermark=0,
        budget=8,
        max_seqs=3,
        convention="engine",
    )


def test_a_threshold_above_the_number_of_requests_is_no_stall() -> None:
    x = few("theta", {"k": 3}, ((0, 5, 13),))
    assert fault(x, uncompiled=True) == ""
    assert reference_decisions(x).fates[0]["finish_ps"] > 0


def test_a_refill_does_not_outlive_an_empty_queue() -> None:
    """The first request takes the whole budget and ends at once; the phase of three after the idle time is whole."""
    x = few("theta", {"k": 3}, ((0, 8, 1), (100, 2, 4), (100, 2, 4), (100, 2, 4)))
    assert fault(x, uncompiled=True) == ""
    assert len(reference_decisions(x).iterations[1][2]) == 3


def test_rotating_decodes_take_turns_by_their_last_token() -> None:
    """Three decodes at two a batch: whoever was left out comes first in the next."""
    x = few("rad_general", {"levels": [(2, 0, 2, 3), (2, 2, 0, 1)]}, ((0, 2, 20), (0, 2, 20), (0, 2, 20)))
    assert fault(x, uncompiled=True) == ""
    served = {tuple(i for i, _, decode in m if decode) for *_, m in reference_decisions(x).iterations}
    assert served >= {(0, 1), (0, 2), (1, 2)}, served


# A quota passes the second request over for the third, which then loses its block to the first: when the first has
# ended, the preempted third goes before the second, although it arrived after it.
@pytest.mark.parametrize(
    ("policy", "seed"), [("orca", 1576)], ids=["a preempted request leads one that a quota had passed over"]
)
def test_the_preempted_lead_the_queue(policy: str, seed: int) -> None:
    assert fault(instance(policy, seed), uncompiled=True) == ""


# TBT control shrinks the budget to one token while two decodes are critical: both are served, as Sarathi-Serve serves
# all of its decodes whatever the budget; the reference had held the second up.
def test_critical_decodes_do_not_ask_the_budget() -> None:
    assert fault(instance("slai", 434), uncompiled=True) == ""
