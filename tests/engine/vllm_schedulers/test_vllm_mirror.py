"""The mirror follows an engine that does otherwise than decided, and stays the simulator's state. No vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.scheduler import Scheduler
from tileq_engine.vllm.asked import Asked
from tileq_engine.vllm.mirror import Mirror, error_of

STEP = 10_000_000_000
PLAIN = Asked(0.5, False)


def made(name: str = "sarathi", blocks: int = 100, capacity: int = 64, **config: int) -> Mirror:
    own = {"token_budget": 64, "max_num_seqs": 8, **config}
    return Mirror(policy(name), EngineConfig(kv_tokens=16 * blocks, **own), capacity=capacity)


def free(mirror: Mirror) -> int:
    """Return what an engine with these residents has free: it gives out a block when a token needs it."""
    state = mirror.state
    seats = state.O[: state.scalar("nres")]
    return state.scalar("total_blocks") - int(((state.B["cached"][seats] + 15) // 16).sum())


def test_a_stream_through_the_mirror_is_decided_as_by_the_scheduler_itself() -> None:
    asked = Requests.from_arrays(arrival_ps=[0] * 30, prompt_tokens=[7 * k + 1 for k in range(30)], output_tokens=9)
    config = EngineConfig(kv_tokens=16 * 40, token_budget=64, max_num_seqs=8)
    rules = Scheduler(policy("slai"), config, requests=asked.with_(tbt_limit_ps=np.full(30, 3 * STEP)))
    mirror = Mirror(policy("slai"), config, capacity=64)
    for k in range(30):
        mirror.add(str(k), Asked(STEP * 3 / 1e12, False), prompt_tokens=7 * k + 1, output_tokens=9, arrival_ps=0)
    now = 0
    while len(mirror):
        batch = rules.decide(now)
        found = mirror.decide(now, free(mirror))
        expected = {str(i): c or 1 for i, c in zip(batch.ids.tolist(), batch.prefill_tokens.tolist(), strict=True)}
        assert found.tokens == expected
        assert found.preempted == [str(i) for i in batch.preempted]
        assert error_of(mirror) is None
        now += STEP
        assert sorted(mirror.close(now)) == sorted(str(i) for i in rules.complete(STEP))


def test_tables_are_compacted_and_grow() -> None:
    mirror = made(capacity=8)
    now = 0
    for k in range(100):
        mirror.add(f"r{k}", PLAIN, prompt_tokens=10, output_tokens=3, arrival_ps=now)
        mirror.decide(now, free(mirror))
        now += STEP
        mirror.close(now)
        assert error_of(mirror) is None
    for _ in range(20):
        mirror.decide(now, free(mirror))
        now += STEP
        mirror.close(now)
    assert len(mirror) == 0
    assert mirror.rules.capacity <= 64
    for k in range(70):  # all at once: the tables have to grow
        mirror.add(f"s{k}", PLAIN, prompt_tokens=10, output_tokens=3, arrival_ps=now)
    order: list[str] = []
    while len(mirror):
        order += [n for n in mirror.decide(now, free(mirror)).tokens if n not in order]
        now += STEP
        mirror.close(now)
    assert order == [f"s{k}" for k in range(70)]


RULES: list[tuple[str, dict[str, Any]]] = [
    ("sarathi", {}),
    ("slai", {}),
    ("slai", {"order": "paying_spf", "mean": "ewma"}),
    ("rad", {}),
    ("rad_general", {"levels": [[64, 48, 16, 1.0], [32, 0, 32, 2.0]]}),
    ("aging", {"base": "sarathi"}),
    ("sjf", {}),
    ("svf", {}),
    ("priority", {}),
    ("vllm_v1", {}),
    ("sarathi", {"tenant_quota": 2}),
]


def _stream(mirror: Mirror, seed: int, count: int) -> Iterator[tuple[dict[str, int], list[str]]]:
    """Yield the decisions on a stream in overload, then until all have left; some give up."""
    rng = np.random.default_rng(seed)
    came, now = 0, 0
    while came < count or len(mirror):
        for _ in range(int(rng.integers(0, 4)) if came < count else 0):
            mirror.add(
                str(came),
                Asked(float(rng.uniform(0.02, 0.2)), bool(rng.random() < 0.3), tenant=int(rng.integers(3))),
                prompt_tokens=int(rng.integers(1, 90)),
                output_tokens=int(rng.integers(1, 25)),
                arrival_ps=now + came,
                priority=int(rng.integers(3)),
            )
            came += 1
        if rng.random() < 0.1 and came:
            mirror.leave([str(int(rng.integers(came)))])
        now += int(rng.integers(1, 50)) * 1_000_000
        decision = mirror.decide(now, free(mirror))
        assert error_of(mirror) is None
        yield decision.tokens, decision.preempted
        now = mirror.now_ps + int(rng.integers(1, 30)) * 1_000_000_000
        mirror.close(now)


@pytest.mark.parametrize(("name", "params"), RULES, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("blocks", [400, 14], ids=["ample", "tight"])
def test_compacting_changes_no_decision(name: str, params: dict[str, Any], blocks: int) -> None:
    """Numbers are given anew whenever the table is full; whoever waits then keeps its place in the line."""
    config = EngineConfig(kv_tokens=16 * blocks, token_budget=64, max_num_seqs=6)
    for seed in range(3):
        small, large = (Mirror(policy(name, **params), config, tenants=3, capacity=c) for c in (8, 4096))
        for k, (ours, theirs) in enumerate(zip(_stream(small, seed, 150), _stream(large, seed, 150), strict=True)):
            assert ours == theirs, f"decision {k} of seed {seed}"
            assert list(ours[0]) == list(theirs[0])
        assert large.rules.count > 140 > small.rules.count, "one was compacted, the other not"


def test_a_prefix_that_was_cached_shortens_the_prefill() -> None:
    mirror = made()
    mirror.add("a", PLAIN, prompt_tokens=100, output_tokens=5)
    assert mirror.decide(0, free(mirror)).tokens == {"a": 64}
    mirror.settle({"a": (20, 0)}, {})  # the engine had 80 of the 100 in its cache
    mirror.close(STEP)
    assert mirror.counts() == {"decoding": 1, "prefilling": 0, "waiting": 0}
    assert mirror.decide(STEP, free(mirror)).tokens == {"a": 1}


def test_whom_the_engine_did_not_admit_waits_in_its_place() -> None:
    mirror = made()
    for name in "ab":
        mirror.add(name, PLAIN, prompt_tokens=20, output_tokens=5)
    assert mirror.decide(0, free(mirror)).tokens == {"a": 20, "b": 20}
    mirror.settle({}, {"a": False})
    mirror.add("c", PLAIN, prompt_tokens=20, output_tokens=5)
    mirror.close(STEP)
    assert error_of(mirror) is None
    assert mirror.decide(STEP, free(mirror)).tokens == {"b": 1, "a": 20, "c": 20}


def test_whom_the_engine_preempted_comes_first_again() -> None:
    mirror = made()
    mirror.add("a", PLAIN, prompt_tokens=20, output_tokens=5)
    mirror.decide(0, free(mirror))
    mirror.close(STEP)
    mirror.add("b", PLAIN, prompt_tokens=20, output_tokens=5, arrival_ps=0)
    assert mirror.decide(STEP, free(mirror)).tokens == {"a": 1, "b": 20}
    mirror.unseat("a", 21)
    mirror.settle({}, {"a": False})
    mirror.close(2 * STEP)
    assert mirror.decide(2 * STEP, free(mirror)).tokens == {"b": 1, "a": 21}


def test_whom_the_engine_admitted_by_itself_is_a_resident() -> None:
    mirror = made(max_num_seqs=8)
    mirror.add("a", PLAIN, prompt_tokens=20, output_tokens=5)
    mirror.blank(0)
    mirror.settle({"a": (20, 0)}, {})
    mirror.close(STEP)
    assert mirror.counts() == {"decoding": 1, "prefilling": 0, "waiting": 0}


def test_requests_leave_from_everywhere() -> None:
    mirror = made(max_num_seqs=2)
    for name in "abc":
        mirror.add(name, PLAIN, prompt_tokens=20, output_tokens=5)
    mirror.decide(0, free(mirror))
    mirror.add("d", PLAIN, prompt_tokens=20, output_tokens=5)
    mirror.leave(["a", "c", "d", "nobody"])  # in the open batch, in the queue, not told to the rules yet, unknown
    mirror.close(STEP)
    assert error_of(mirror) is None and len(mirror) == 1
    assert mirror.decide(STEP, free(mirror)).tokens == {"b": 1}
    assert mirror.state.scalar("nsys") == 1 and mirror.state.scalar("nwaiting") == 0


def test_a_late_completion_moves_the_deadline() -> None:
    mirror = made("slai")
    mirror.add("a", Asked(1.0, False), prompt_tokens=20, output_tokens=5)
    mirror.decide(0, free(mirror))
    mirror.close(STEP)
    before = int(mirror.state.B["lst"][0])
    mirror.shift(STEP, 5)
    assert int(mirror.state.B["lst"][0]) == before + 5 and int(mirror.state.B["last"][0]) == STEP + 5


@st.composite
def disturbances(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["add", "leave", "unseat", "refuse", "hit", "nothing"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 30)), min_size=5, max_size=60))


def _names(mirror: Mirror) -> Iterator[str]:
    yield from list(mirror.index)


@pytest.mark.parametrize("name", ["sarathi", "slai", "aging", "vllm_v1", "priority"])
@given(steps=disturbances())
@settings(max_examples=25)
def test_whatever_the_engine_does_the_state_stays_sound_and_empties(name: str, steps: list[tuple[str, int]]) -> None:
    mirror = made(name, blocks=12, capacity=8)
    now = count = 0
    for kind, number in steps:
        if kind == "add":
            mirror.add(f"r{count}", PLAIN, prompt_tokens=1 + 5 * number, output_tokens=1 + number % 7, arrival_ps=now)
            count += 1
        known = list(_names(mirror))
        if kind == "leave" and known:
            mirror.leave([known[number % len(known)]])
        planned = mirror.decide(now, free(mirror)).tokens
        if planned and kind in ("unseat", "refuse", "hit"):
            chosen = list(planned)[number % len(planned)]
            if kind == "unseat":
                mirror.unseat(chosen, 1 + number)
                mirror.settle({}, {chosen: False})
            elif kind == "refuse":
                mirror.settle({}, {chosen: False})
            else:
                mirror.settle({chosen: (1, 0)}, {})
        assert error_of(mirror) is None
        now += STEP
        mirror.close(now)
        assert error_of(mirror) is None
    for _ in range(3000):
        if not len(mirror):
            break
        assert mirror.decide(now, free(mirror)).tokens, "somebody can always run"
        now += STEP
        mirror.close(now)
    assert len(mirror) == 0
    assert mirror.state.scalar("nres") == mirror.state.scalar("nwait") == mirror.state.scalar("nsys") == 0


def _after_a_blank(count: int) -> Mirror:
    """Return a mirror that vLLM's own iteration has passed by while `count` requests came."""
    config = EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=16_000)
    mirror = Mirror(policy("sarathi", order="spf"), config, capacity=8)
    for k in range(count):
        mirror.add(str(k), Asked(0.5, False), prompt_tokens=10 + k, output_tokens=3)
    mirror.blank(1000)
    return mirror


def test_whom_vllm_lets_in_by_itself_holds_one_seat() -> None:
    mirror = _after_a_blank(4)
    mirror.settle({"2": (12, 0)}, {})
    assert mirror.residents == 1 and error_of(mirror) is None
    mirror.close(10**9)
    decision = mirror.decide(10**9, 900)
    assert decision.tokens == {"2": 1, "0": 10, "1": 11, "3": 13} and error_of(mirror) is None
    mirror.close(2 * 10**9)
    for k in range(2, 6):
        mirror.decide(k * 10**9, 900)
        assert error_of(mirror) is None
        mirror.close((k + 1) * 10**9)
    assert len(mirror) == 0 and mirror.state.scalar("nsys") == 0


def test_who_goes_away_before_a_decision_does_not_come_back() -> None:
    mirror = _after_a_blank(4)
    mirror.leave(["1", "3"])
    assert error_of(mirror) is None and len(mirror) == 2
    assert mirror.decide(2000, 900).tokens == {"0": 10, "2": 12} and error_of(mirror) is None
    assert mirror.counts()["waiting"] == 0


def test_who_came_before_the_tables_were_compacted_keeps_the_arrival() -> None:
    """The score of `aging` grows with the wait, which is counted from it."""
    mirror = made("aging", capacity=8)
    for k in range(20):
        mirror.add(str(k), PLAIN, prompt_tokens=10, output_tokens=3, arrival_ps=1000 * k)
    mirror.decide(10**6, free(mirror))
    assert [int(mirror.state.R["arrival"][mirror.index[str(k)]]) for k in range(20)] == [1000 * k for k in range(20)]


EVERYBODY: list[tuple[str, dict[str, object]]] = [
    ("sarathi", {}),
    ("sarathi", {"order": "spf"}),
    ("slai", {"order": "paying_spf", "mean": "ewma"}),
    ("aging", {"base": "sarathi"}),
    ("priority", {"base": "sarathi"}),
    ("vllm_v1", {"admission": "sequence"}),
    ("rad_general", {"levels": [[64, 48, 16, 1.0], [32, 0, 32, 2.0]]}),
    ("rad", {"b_col": 8, "b_lcm": 64}),
    ("sjf", {}),
    ("svf", {}),
]


@pytest.mark.parametrize(("name", "params"), EVERYBODY, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("blocks", [40, 400], ids=["tight", "ample"])
def test_tables_that_are_compacted_again_and_again_decide_as_those_that_never_are(
    name: str, params: dict[str, object], blocks: int
) -> None:
    config = EngineConfig(kv_tokens=16 * blocks, token_budget=64, max_num_seqs=8)
    small, large = (Mirror(policy(name, **params), config, capacity=c) for c in (8, 4096))
    rng = np.random.default_rng(3)
    now = came = 0
    while came < 300 or len(large):
        for _ in range(int(rng.integers(0, 4)) if came < 300 else 0):
            asked = Asked(float(rng.choice([0.03, 0.3])), bool(rng.random() < 0.3))
            own = {"prompt_tokens": int(rng.integers(1, 120)), "output_tokens": int(rng.integers(1, 20))}
            own |= {"priority": int(rng.integers(0, 3)), "arrival_ps": now}
            for mirror in (small, large):
                mirror.add(str(came), asked, **own)
            came += 1
        if large.index and rng.random() < 0.05:
            chosen = sorted(large.index)[int(rng.integers(len(large.index)))]
            for mirror in (small, large):
                mirror.leave([chosen])
        one, other = (mirror.decide(now, free(mirror)) for mirror in (small, large))
        assert one == other and list(one.tokens) == list(other.tokens), f"at {now}"
        now += int(rng.integers(1, 20)) * STEP // 10
        assert small.close(now) == large.close(now)
    assert small.rules.capacity < 600
