"""Laws that the reference must keep on random instances, whatever the policy: the referee is refereed first."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import differential
import pytest
from differential import Decisions, Instance, draw_instance, reference_decisions
from differential_draw import EVERY_POLICY
from hypothesis import given, settings
from hypothesis import strategies as st
from tileq_reference import POLICIES, Config, Cost, Request, Simulator, simulate

NAMES = EVERY_POLICY


def conserved(x: Instance, d: Decisions) -> None:
    """Tokens are neither lost nor generated twice; nobody runs before arriving; iterations do not overlap."""
    served: dict[int, list[int]] = {i: [0, 0] for i in range(len(x.requests))}
    for start, _, members in d.iterations:
        assert len({i for i, _, _ in members}) == len(members), "a request twice in one batch"
        for i, tokens, decode in members:
            assert x.requests[i]["arrival"] <= start
            served[i][decode] += tokens
    for (start, took, _), (later, _, _) in pairwise(d.iterations):
        assert later >= start + took
    for i, f in enumerate(d.fates):
        if f["reject_reason"]:
            assert served[i] == [0, 0]
            continue
        r = x.requests[i]
        if f["tokens_done"] < r["output"] and (x.preemption == "none" or x.oversize == "wait"):
            continue  # nobody makes room, or an oversize prompt heads the queue for ever
        assert f["tokens_done"] == r["output"], "every request that was let in ends"
        last = 1 if x.convention == "engine" else 0
        # the cache at the end holds prompt + output (- 1), computed or found; so was what was thrown away
        assert sum(served[i]) + f["prefix_hit_tokens"] == r["prompt"] + r["output"] - last + f["recomputed_tokens"]
        assert f["prefill_end_ps"] <= f["first_token_ps"] <= f["finish_ps"]


@pytest.mark.parametrize("policy", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_conservation(policy: str, data: st.DataObject) -> None:
    x = draw_instance(lambda a, b: data.draw(st.integers(a, b)), policy)
    conserved(x, reference_decisions(x))


@pytest.mark.parametrize("policy", NAMES)
def test_tight_memory_is_really_reached(policy: str) -> None:
    """The space of instances is worth something only if preemption, rejection and full budgets occur in it."""
    seen: dict[str, int] = {"preempted": 0, "rejected": 0}
    for seed in range(300):
        x = draw_instance(random.Random(seed).randint, policy)
        d = reference_decisions(x)
        conserved(x, d)
        seen["preempted"] += any(f["preemptions"] for f in d.fates)
        seen["rejected"] += any(f["reject_reason"] for f in d.fates)
    assert seen["rejected"] >= 5
    assert seen["preempted"] >= 5 or policy in ("static", "rad"), seen


def test_the_comparison_itself_sees_a_difference() -> None:
    x = draw_instance(random.Random(3).randint, "sarathi")
    d = reference_decisions(x)
    start, took, members = d.iterations[-1]
    assert d.first_difference(d) is None
    assert "iteration" in (
        d.first_difference(Decisions((*d.iterations[:-1], (start, took + 1, members)), d.fates)) or ""
    )
    changed = ({**d.fates[0], "max_gap_ps": -7}, *d.fates[1:])
    assert "max_gap_ps" in (d.first_difference(Decisions(d.iterations, changed)) or "")
    assert differential.smaller(x, lambda y: True).requests == x.requests[-1:]


# ------------------------------------------------------------------ RAD's invariants


@settings(max_examples=80, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=14),
    b=st.integers(1, 6),
    cycle=st.sampled_from([None, 1, 3, 100]),
)
def test_rad_invariants_at_every_iteration(shapes: list[tuple[int, int, int]], b: int, cycle: int | None) -> None:
    t_lin, t_nl = 40, 3
    requests = [Request(i, at, tiles * b, o) for i, (at, tiles, o) in enumerate(sorted(shapes))]
    extra = {"b_col": b, "b_lcm": b, "cycle": cycle}
    config = Config("rad", engine_convention=False, extra=extra)
    s = Simulator(requests, config, Cost(a=t_lin, b=b, beta=t_nl), POLICIES["rad"])
    served = last_end = backlog = 0
    while True:
        done = len(s.batches)
        s.run(iterations=done + 1)
        if len(s.batches) == done:
            break
        batch = s.batches[-1]
        served += batch.tokens
        members = {r.id for r, _, _ in batch.items}
        residents = {r.id for r in s.decoding()}
        assert len(residents) <= b
        if batch.tokens < b:  # not full: then every resident decode is in it, fewer than b_col
            assert all(decode for _, _, decode in batch.items) and residents <= members and len(members) < b
        arriving = sum(
            r.prompt + r.output for r in requests if last_end < r.arrival <= batch.end or (done == 0 and r.arrival == 0)
        )
        after = sum(_left(r) for r in requests if r.arrival <= batch.end)
        assert after - backlog == arriving - batch.tokens  # a full slot: arriving - b_col
        assert served * (t_lin + t_nl * b) <= b * s.now  # pathwise converse
        backlog, last_end = after, batch.end
    assert all(r.status == "done" for r in requests)


def _left(r: Request) -> int:
    """Prefill and decode tokens a request still needs (paper convention, no preemption)."""
    return (r.prompt - min(r.kv, r.prompt)) + (r.output - r.generated)


# ------------------------------------------------------------------ SLAI becomes decode-first, shortest first


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(st.integers(0, 900), st.integers(1, 700), st.integers(1, 12), st.booleans()), min_size=1, max_size=12
    ),
    budget=st.sampled_from([16, 128, 512]),
    batch_ms=st.integers(50, 120),
    variant=st.sampled_from(["fixed", "dynamic theta 10"]),
)
def test_slai_with_slow_batches_is_sarathi_shortest_first(
    shapes: list[tuple[int, int, int, bool]], budget: int, batch_ms: int, variant: str
) -> None:
    """Theta = 10 and batches of 50 ms or more: 10 * mean >= .5 s, so every decode is critical at once."""
    ms = 10**9

    def decisions(policy: str, extra: dict[str, Any]) -> list[Any]:
        requests = [Request(i, at * ms, p, o, paying=pay) for i, (at, p, o, pay) in enumerate(sorted(shapes))]
        s = simulate(
            requests, Config(policy, budget, extra={"order": "spf", **extra}), Cost(c=batch_ms * ms, beta=1000)
        )
        return [(b.start, b.end, b.trace()) for b in s.batches]

    own = {"fixed": True} if variant == "fixed" else {"theta": 10}
    assert decisions("slai", own) == decisions("sarathi", {})


# ------------------------------------------------------------------ point C and the overload slope, in small

DAI = Cost(c=11_280_000_000, a=35_470_000_000, b=128)


def test_sarathi_locks_at_exact_capacity_in_small() -> None:
    """Dai's point C scaled down: 8 + 24 tokens every 2 iterations of 16 tokens, 13 slots: 4 prefill + 12 decodes.

    The load is exactly one, so only a policy that fills every batch can hold it.
    """
    requests = [Request(i, 2 * i, 8, 24) for i in range(400)]
    s = Simulator(requests, Config("sarathi", 16, 13, engine_convention=False), Cost(c=1), POLICIES["sarathi"])
    s.run(until=780)
    assert {(b.tokens - b.decodes, b.decodes) for b in s.batches[-200:]} == {(4, 12)}


@pytest.mark.parametrize("policy", ["static", "vllm_v0", "orca"])
def test_whole_prompt_policies_freeze_on_a_prompt_beyond_the_budget(policy: str) -> None:
    requests = [Request(i, i * 467_500_000_000, 290, 990) for i in range(20)]
    s = simulate(requests, Config(policy, 128, 100, engine_convention=False), DAI)
    assert s.batches == [] and len(s.waiting) == 20
