"""The reference against instances worked by hand: every batch is written out before the code is asked."""

from __future__ import annotations

from typing import Any

import pytest
from tileq_reference import Config, Cost, Request, Simulator, aging_score, simulate

MS = 10**9
ONE = Cost(c=MS)  # every iteration takes 1 ms


def lines(s: Simulator) -> list[str]:
    """One line a batch: decodes by letter, prefill chunks as letter and tokens, each sorted."""
    out = []
    for b in s.batches:
        decodes = "".join(sorted(chr(65 + r.id) for r, _, d in b.items if d))
        chunks = " ".join(sorted(f"{chr(65 + r.id)}{t}" for r, t, d in b.items if not d))
        out.append(" ".join(x for x in (decodes, chunks) if x))
    return out


def run(policy: str, shapes: list[tuple[int, ...]], budget: int = 8, cost: Cost = ONE, **more: Any) -> Simulator:
    """Requests (arrival in ms, prompt, output), named A, B, ...; settings of Config, the rest to the policy."""
    own = {k: more.pop(k) for k in ("max_seqs", "kv_blocks", "watermark", "engine_convention", "swap") if k in more}
    own["swap_ps_per_token"] = more.pop("swap_ps_per_token", 0)
    extras = more.pop("fields", {})
    requests = [Request(i, a * MS, p, o, **extras.get(i, {})) for i, (a, p, o) in enumerate(shapes)]
    s = Simulator(requests, Config(policy, budget, extra=more, **own), cost, _policy(policy))
    s.observe = Simulator.check
    return s.run(iterations=10_000)


def _policy(name: str) -> Any:
    from tileq_reference import POLICIES

    return POLICIES[name]


# ------------------------------------------------------------------ Dai et al., Fig. 8

FIG8 = {
    "vllm_v0": (4, "[ABC][DpEp][ABCD][BCE][B]"),
    "orca": (5, "[ABC][ABC DpEp][BCDE][B]"),
    "static": (4, "[ABC][ABC][BC][B][DpEp][DE]"),
    "sarathi": (4, "[ABC][ABC Dp][BCD Ep][BE]"),
}


@pytest.mark.parametrize("policy", FIG8)
@pytest.mark.parametrize("resident", [True, False], ids=["start prefilled", "prefilled by batch 0"])
def test_hand_trace_of_dai_figure_8(policy: str, resident: bool) -> None:
    """A, B, C prefilled with 2, 4, 3 tokens left; D and E come during batch 1 with one prefill and one decode token."""
    budget, printed = FIG8[policy]
    late = MS // 2 if resident else MS + MS // 2
    abc = [Request(i, 0, 1, o, prefilled=resident) for i, o in enumerate((2, 4, 3))]
    requests = [*abc, Request(3, late, 1, 1), Request(4, late, 1, 1)]
    s = simulate(requests, Config(policy, budget, engine_convention=False), ONE)
    trace = ""
    for b in s.batches:
        decodes = "".join(sorted("ABCDE"[r.id] for r, _, d in b.items if d))
        chunks = "".join(sorted("ABCDE"[r.id] + "p" for r, _, d in b.items if not d))
        trace += f"[{' '.join(x for x in (decodes, chunks) if x)}]"
    assert trace == printed if resident else trace == "[ApBpCp]" + printed


# ------------------------------------------------------------------ mixing


def test_static_batch_waits_for_its_longest_member() -> None:
    # A and B fill the budget of 8; C comes at once but must wait until B, the longer, has its 3 tokens (engine: the
    # prefill gives the first)
    assert lines(run("static", [(0, 4, 2), (0, 4, 3), (0, 4, 1)])) == ["A4 B4", "AB", "B", "C4"]


def test_orca_takes_whole_prompts_or_chunks() -> None:
    # whole: B's 6 do not fit beside A's 6 in 8. Chunked: B's first 2 do.
    shapes = [(0, 6, 3), (0, 6, 2)]
    assert lines(run("orca", shapes)) == ["A6", "A B6", "AB"]
    assert lines(run("orca", shapes, whole=False)) == ["A6 B2", "A B4", "AB"]
    # prefills first: with a budget of 6 whole B leaves A no token in the second iteration
    assert lines(run("orca", shapes, budget=6)) == ["A6", "B6", "AB", "A"]


def test_vllm_v0_lets_prefills_go_first_and_alone() -> None:
    # B arrives during A's prefill; A's decode waits for B's prefill-only batch
    assert lines(run("vllm_v0", [(0, 4, 3), (0, 6, 2)])) == ["A4", "B6", "AB", "A"]


def test_chunked_mixing_fills_what_decodes_leave() -> None:
    # budget 8: A 8 of 10; A's last 2 with B's first 6; then one decode of A beside B's last 4
    shapes = [(0, 10, 3), (0, 10, 2)]
    for policy in ("sarathi", "vllm_v1"):
        assert lines(run(policy, shapes)) == ["A8", "A2 B6", "A B4", "AB"]


def test_sarathi_decodes_are_not_capped_and_v1_ones_are() -> None:
    # three residents, budget 2 (one token prompts come one at a time beside the decodes)
    shapes = [(0, 1, 9), (0, 1, 9), (3, 1, 2), (4, 1, 2)]
    sarathi = lines(run("sarathi", shapes, budget=2))
    assert sarathi[:3] == ["A1 B1", "AB", "AB"] and sarathi[3] == "AB"  # never room for C until one of them ends
    residents = {i: {"prefilled": True} for i in range(3)}
    three = [(0, 1, 2), (0, 1, 2), (0, 1, 2)]
    assert lines(run("sarathi", three, budget=2, fields=residents)) == ["ABC", "ABC"]
    assert lines(run("vllm_v1", three, budget=2, fields=residents)) == ["AB", "AB", "C", "C"]


# ------------------------------------------------------------------ memory: 4 blocks of 16, two requests of 31 + 10


def test_recompute_restarts_the_last_admitted() -> None:
    # engine convention: prompts 31 + 31 hold 2 + 2 blocks; decode 1 fills block 2; decode 2 of A wants a third block:
    # B goes, with 2 tokens known. A ends at its token 10 (decode 9). B prefills 31 + 2 = 33 (3 blocks), which emits its
    # token 3, and decodes 7 times.
    for policy in ("vllm_v0", "sarathi", "vllm_v1"):
        s = run(policy, [(0, 31, 10), (0, 31, 10)], budget=64, kv_blocks=4)
        assert lines(s) == ["A31 B31", "AB", *["A"] * 8, "B33", *["B"] * 7], policy
        b = s.requests[1]
        assert (b.preemptions, b.recomputed) == (1, 32)
        assert max(b.gaps) == 9 * MS  # its token 2 came with iteration 2, its token 3 with iteration 11


def test_swap_carries_the_tokens_both_ways() -> None:
    # the same pair: B leaves with 32 tokens (1 us a token: the iteration takes 32 us more), and returns when its 3
    # blocks are free, decoding in the same iteration
    cost_us = 10**6
    s = run("vllm_v0", [(0, 31, 10), (0, 31, 10)], 64, kv_blocks=4, swap=True, swap_ps_per_token=cost_us)
    assert lines(s) == ["A31 B31", "AB", *["A"] * 8, *["B"] * 8]
    assert s.batches[2].end - s.batches[2].start == MS + 32 * cost_us
    assert s.batches[10].end - s.batches[10].start == MS + 32 * cost_us
    assert (s.requests[1].swapped_tokens, s.requests[1].recomputed) == (64, 0)


def test_paper_convention_takes_one_decode_more() -> None:
    for policy in ("static", "orca", "vllm_v0", "vllm_v1", "sarathi"):
        assert lines(run(policy, [(0, 4, 2)], engine_convention=False)) == ["A4", "A", "A"]
        assert lines(run(policy, [(0, 4, 2)])) == ["A4", "A"]
        assert lines(run(policy, [(0, 4, 1)])) == ["A4"]


def test_watermark_keeps_blocks_free_at_admission_only() -> None:
    # 4 blocks, watermark 1: A (32 tokens, 2 blocks) leaves 2; B (17 tokens, 2 blocks) would leave none: waits
    shapes = [(0, 32, 2), (0, 17, 1)]
    assert lines(run("sarathi", shapes, 64, kv_blocks=4, watermark=1)) == ["A32", "A", "B17"]
    assert lines(run("sarathi", shapes, 64, kv_blocks=4)) == ["A32 B17", "A"]


def test_priority_evicts_the_least_urgent_even_if_it_came_first() -> None:
    # A is less urgent (1) than B (0); when B's decode wants a third block, A, though admitted first, must go
    who = {0: {"priority": 1}, 1: {"priority": 0}}
    s = run("vllm_v1", [(0, 31, 10), (1, 31, 10)], 64, kv_blocks=4, order="priority", fields=who)
    # A31 | A B31 | A wants its third block, all 4 are used, and A itself is the least urgent: it goes, B runs on
    assert lines(s)[:4] == ["A31", "A B31", "B", "B"]
    assert s.requests[0].preemptions == 1 and s.requests[1].preemptions == 0


def test_too_large_for_the_cache_is_turned_away() -> None:
    # 4 blocks hold 64 tokens: 60 + 5 needs 64 under the engine convention (fits), 65 under the paper's (does not)
    assert lines(run("sarathi", [(0, 60, 5)], 64, kv_blocks=4)) == ["A60", *["A"] * 4]
    s = run("sarathi", [(0, 60, 5)], 64, kv_blocks=4, engine_convention=False)
    assert (s.requests[0].status, s.batches) == ("rejected", [])


# ------------------------------------------------------------------ waiting orders


def test_orders_of_the_waiting() -> None:
    # A occupies the only slot; B, C, D wait: prompts 5, 3, 4; outputs 2, 3, 1; priority 1, 1, 0
    shapes = [(0, 8, 1), (0, 5, 2), (0, 3, 3), (0, 4, 1)]
    who = {i: {"priority": p} for i, p in enumerate((0, 1, 1, 0))}

    def order(name: str) -> str:
        s = run("vllm_v1", shapes, max_seqs=1, order=name, fields=who)
        return "".join(chr(65 + b.items[0][0].id) for b in s.batches if not b.items[0][2])

    # with one slot the first admitted is the first of the order itself
    assert order("fcfs") == "ABCD"
    assert order("spf") == "CDBA"
    assert order("sjf") == "ADBC"
    assert order("priority") == "ADBC"


def test_the_aging_scorer_as_published() -> None:
    assert f"{aging_score(0, 0):.4f}" == "0.5000"
    assert f"{aging_score(0, 32768):.4f}" == "0.3845"
    assert aging_score(1e4, 0) <= 1.0 and aging_score(0, 1e9) >= 0.0


# ------------------------------------------------------------------ RAD and SLAI


def test_rad_alternates_as_algorithm_1_says() -> None:
    # b_col = 2, b_lcm = 4, paper convention. A (8, 2), B (4, 3), C (4, 1), all there at 0:
    # two chunks of A, one of B -> |D| = 2: decode until one leaves (A after 2); C's chunk; B and C; nothing is left
    s = run("rad", [(0, 8, 2), (0, 4, 3), (0, 4, 1)], b_col=2, b_lcm=4, engine_convention=False)
    assert lines(s) == ["A4", "A4", "B4", "AB", "AB", "C4", "BC"]


def test_rad_charges_a_full_tile_for_a_short_chunk() -> None:
    s = run("rad", [(0, 5, 1)], b_col=2, b_lcm=4, engine_convention=False, cost=Cost(beta=10))
    assert [b.end - b.start for b in s.batches] == [40, 40, 10]


def test_rad_cycle_takes_n_prefills_and_drains() -> None:
    # N = 2: C, though waiting, must wait until A and B are done; their drain runs short of b_col = 2
    s = run("rad", [(0, 4, 3), (0, 4, 1), (0, 4, 1)], b_col=2, b_lcm=4, cycle=2, engine_convention=False)
    assert lines(s) == ["A4", "B4", "AB", "A", "A", "C4", "C"]


def test_slai_serves_critical_decodes_then_prefills_then_others() -> None:
    # 1 ms batches, TBT limit 20 ms, Theta 5: a decode is critical from 20 - 5 = 15 ms after its last token on.
    # Budget 4: A (4 tokens) is prefilled; B's 40 tokens then take the whole budget for as long as A is not critical:
    # A's token 1 at 1 ms, so critical at 16 ms, after 10 chunks of B (to 11 ms) it is served as "other" at once.
    limit = {i: {"tbt_limit": 20 * MS} for i in range(2)}
    s = run("slai", [(0, 4, 3), (0, 40, 1)], budget=4, fields=limit)
    assert lines(s) == ["A4", *["B4"] * 10, "A", "A"]
    # TBT limit 7 ms: critical 2 ms after its last token; B's chunk shrinks to 3 whenever A is served
    tight = {i: {"tbt_limit": 7 * MS} for i in range(2)}
    s = run("slai", [(0, 4, 4), (0, 20, 1)], budget=4, fields=tight)
    assert lines(s) == ["A4", "B4", "B4", "A B3", "B4", "B4", "A B1", "A"]
