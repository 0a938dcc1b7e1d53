"""A record of decisions is replayed in the simulator to the picosecond; one that was changed is not. No vLLM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.vllm.asked import Asked
from tileq_engine.vllm.recording import Record, RecordedMirror, read_record
from tileq_engine.vllm.replaying import last_output_ps, replay_record, requests_of

US = 1_000_000
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("sarathi", {}),
    ("slai", {"order": "paying_spf", "mean": "ewma"}),
    ("aging", {"base": "sarathi"}),
    ("rad_general", {"levels": [[64, 48, 16, 1.0], [32, 0, 32, 2.0]]}),
    ("vllm_v1", {"admission": "sequence"}),
]


def drive(mirror: RecordedMirror, seed: int, count: int, *, gap_us: int = 6000, late: bool = False) -> None:
    """Serve requests; with `late`, decisions come some microseconds after the iteration before, as in a server."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.integers(1, gap_us, count)) * US
    now, came = 0, 0
    while came < count or len(mirror):
        while came < count and arrival[came] <= now:
            paying = bool(rng.random() < 0.3)
            mirror.add(
                str(came),
                Asked(0.01 if paying else 0.05, paying),
                prompt_tokens=int(rng.integers(1, 150)),
                output_tokens=int(rng.integers(1, 30)),
                arrival_ps=int(arrival[came]),
            )
            came += 1
        if not len(mirror):
            now = int(arrival[came])
            continue
        now += int(rng.integers(1, 300)) * US * late
        if not mirror.decide(now, _free(mirror)).tokens:
            raise AssertionError("nobody runs")
        now = mirror.now_ps + int(rng.integers(500, 9000)) * US
        mirror.close(now)


def _free(mirror: RecordedMirror) -> int:
    from tileq_engine.vllm.mirror_edit import reserved_blocks

    return mirror.state.scalar("free") + reserved_blocks(mirror.state)


def recorded(name: str, params: dict[str, Any], *, blocks: int = 2000, path: Path | None = None, **how: Any) -> Any:
    config = EngineConfig(token_budget=64, max_num_seqs=12, kv_tokens=16 * blocks)
    own = policy(name, **params)
    mirror = RecordedMirror(own, config, path=path)
    drive(mirror, how.pop("seed", 1), how.pop("count", 50), **how)
    return mirror.record, own, config


@pytest.mark.parametrize(("name", "params"), POLICIES, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("blocks", [2000, 30], ids=["ample", "tight"])
def test_a_record_is_replayed_to_the_picosecond(name: str, params: dict[str, Any], blocks: int) -> None:
    record, own, config = recorded(name, params, blocks=blocks)
    found = replay_record(record, own, config)
    assert found.differences == () and found.same == found.iterations == len(record.iterations) > 60
    assert found.instants_us == found.finish_us == 0.0
    assert found.raw.stop_reason == "finished" and found.to_dict()["same"] is True


@pytest.mark.parametrize("name", ["sarathi", "vllm_v1"])
def test_decisions_that_come_late_are_the_same_and_their_instants_too(name: str) -> None:
    record, own, config = recorded(name, {}, late=True, gap_us=400_000)
    assert sum(it.alone for it in record.iterations) > 5, "the engine was idle now and then"
    found = replay_record(record, own, config)
    assert found.differences == () and found.instants_us == 0.0
    assert found.finish_us < 300.0, "the replay's iteration ends where the next one was decided"


@pytest.mark.parametrize("change", ["members", "tokens", "instant", "length"])
def test_a_record_of_something_else_is_told_apart(change: str) -> None:
    record, own, config = recorded("sarathi", {})
    at = next(k for k, it in enumerate(record.iterations) if k > 40 and len(it.members) > 2 and it.members[-1][1] > 1)
    it = record.iterations[at]
    if change == "members":
        it.members[0], it.members[1] = it.members[1], it.members[0]
    elif change == "tokens":
        it.members[-1] = (it.members[-1][0], it.members[-1][1] - 1)
    elif change == "instant":
        newest = it.members[-1][0]
        begun = next(k for k, i in enumerate(record.iterations) if newest in {m for m, _ in i.members})
        late = record.iterations[begun].decided_ps + 1
        record.requests[newest] = replace(record.requests[newest], arrival_ps=late)
    else:
        last = record.iterations[-1].members[0][0]
        record.requests[last] = replace(record.requests[last], output_tokens=record.requests[last].output_tokens + 1)
    found = replay_record(record, own, config)
    assert found.differences, change
    if change in ("members", "tokens"):
        assert found.same == at and f"iteration {at} of" in found.differences[0]


def test_a_given_up_request_ends_what_can_be_followed() -> None:
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=16_000)
    own = policy("sarathi")
    mirror = RecordedMirror(own, config)
    for name in "ab":
        mirror.add(name, Asked(0.5, False), prompt_tokens=10, output_tokens=9)
    for k in range(6):
        if k == 3:
            mirror.leave(["a"])
        mirror.decide(mirror.now_ps, 1000)
        mirror.close(mirror.now_ps + 1000 * US)
    found = replay_record(mirror.record, own, config)
    assert (found.iterations, found.of, found.differences) == (3, 6, ())
    assert found.reason == "a request was given up before its end" and found.to_dict()["reason"] == found.reason


def test_the_file_says_what_the_record_says(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    record, own, config = recorded("slai", {"order": "spf"}, path=path)
    kept = read_record(path)
    assert kept == record and json.loads(path.read_text().splitlines()[0])["policy"] == "slai"
    whole = path.read_text()
    path.write_text(whole + '{"iteration": {"deci')  # a line that is being written
    assert read_record(path) == record
    asked = requests_of(kept)
    assert len(asked) == 50 and np.all(np.diff(asked.arrival_ps) >= 0)
    assert np.array_equal(last_output_ps(kept), replay_record(kept, own, config).raw.finish_ps)
    shapes = kept.shapes_and_seconds()
    assert shapes.shape == (len(record.iterations), 5) and np.all(shapes[:, 4] > 0)


def test_an_output_that_comes_later_than_thought_is_noted() -> None:
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=16_000)
    mirror = RecordedMirror(policy("sarathi"), config)
    mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=3)
    mirror.decide(0, 1000)
    mirror.close(5000 * US)
    mirror.decide(mirror.now_ps, 1000)
    mirror.shift(5000 * US, 700 * US)
    assert mirror.record.iterations[0].landed_ps == 5700 * US
    assert mirror.record.shapes_and_seconds().tolist() == [[10.0, 55.0, 0.0, 1.0, 0.0057]]


def test_what_lies_between_two_iterations_belongs_to_the_second_unless_the_engine_was_idle(tmp_path: Path) -> None:
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=16_000)
    path = tmp_path / "record.jsonl"
    mirror = RecordedMirror(policy("sarathi"), config, path=path)
    mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=2, arrival_ps=0)
    for decided_us, landed_us in ((100, 5100), (5900, 9000)):  # 800 us of other work in between
        mirror.decide(decided_us * US, 1000)
        mirror.close(landed_us * US)
    mirror.add("b", Asked(0.5, False), prompt_tokens=10, output_tokens=2, arrival_ps=20_000 * US)
    mirror.decide(20_000 * US, 1000)  # after an idle time
    mirror.close(24_000 * US)
    mirror.leave(["b"])  # given up: idle again
    mirror.add("c", Asked(0.5, False), prompt_tokens=10, output_tokens=1, arrival_ps=50_000 * US)
    mirror.decide(50_000 * US, 1000)
    mirror.close(51_000 * US)
    lasted = [5000e-6, 3900e-6, 4000e-6, 1000e-6]
    assert mirror.record.shapes_and_seconds()[:, 4].tolist() == pytest.approx(lasted, rel=1e-12)
    assert mirror.record.last_arrival() == 3  # "c" was told of after the third decision
    assert mirror.record.shapes_and_seconds(last=2)[:, 4].tolist() == pytest.approx(lasted[:2], rel=1e-12)
    assert mirror.record.shapes_and_seconds(first=1)[:, 4].tolist() == pytest.approx(lasted[1:], rel=1e-12)
    assert read_record(path) == mirror.record


def test_an_empty_record_is_the_same_as_nothing() -> None:
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=16_000)
    mirror = RecordedMirror(policy("sarathi"), config)
    mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=3)
    found = replay_record(mirror.record, policy("sarathi"), config)
    assert (found.iterations, found.differences) == (0, ())
    assert Record().shapes_and_seconds().shape == (0, 5) and Record().last_arrival() == 0
