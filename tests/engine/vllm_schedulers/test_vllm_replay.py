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
from tileq_theory.errors import InputError

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
    _, own, config = recorded("slai", {"order": "spf"}, path=path)
    record, _, _ = recorded("slai", {"order": "spf"})
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
    assert read_record(path).last_arrival() == 3  # "c" was told of after the third decision
    assert mirror.record.shapes_and_seconds(last=2)[:, 4].tolist() == pytest.approx(lasted[:2], rel=1e-12)
    assert mirror.record.shapes_and_seconds(first=1)[:, 4].tolist() == pytest.approx(lasted[1:], rel=1e-12)
    assert read_record(path).shapes_and_seconds().tolist() == mirror.record.shapes_and_seconds().tolist()
    assert read_record(path).iterations == mirror.record.iterations


def test_an_empty_record_is_the_same_as_nothing() -> None:
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=16_000)
    mirror = RecordedMirror(policy("sarathi"), config)
    mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=3)
    found = replay_record(mirror.record, policy("sarathi"), config)
    assert (found.iterations, found.differences) == (0, ())
    assert Record().shapes_and_seconds().shape == (0, 5) and Record().last_arrival() == 0


def _mirror(path: Path | None = None) -> RecordedMirror:
    return RecordedMirror(policy("sarathi"), EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=16_000), path=path)


def _step(mirror: RecordedMirror) -> None:
    mirror.decide(mirror.now_ps, 1000)
    mirror.close(mirror.now_ps + 1000 * US)


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_is_given_up_while_the_iteration_runs_is_in_the_file_too(comes_back: bool, tmp_path: Path) -> None:
    """Ahead of time, an iteration ends, and is written, after the output that was the last of its only member."""
    kept = _mirror(), _mirror(tmp_path / "record.jsonl")
    for mirror in kept:
        mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=9)
        _step(mirror)
        mirror.decide(mirror.now_ps, 1000)
        mirror.leave(["a"])
        if comes_back:
            mirror.add("b", Asked(0.5, False), prompt_tokens=10, output_tokens=9)
        mirror.close(mirror.now_ps + 1000 * US)
    found = read_record(tmp_path / "record.jsonl")
    assert [it.alone for it in found.iterations] == [False, not comes_back]
    assert (found.iterations, found.cut, found.reason) == (
        kept[0].record.iterations,
        2,
        "a request was given up before its end",
    )


def test_who_comes_back_ends_what_can_be_followed_in_the_file_too(tmp_path: Path) -> None:
    mirror = _mirror(tmp_path / "record.jsonl")
    mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=1)
    _step(mirror)
    mirror.add("a", Asked(0.5, False), prompt_tokens=1, output_tokens=1, front=True)
    _step(mirror)
    found = read_record(tmp_path / "record.jsonl")
    assert (found.cut, len(found.iterations), len(found.requests)) == (1, 2, 2)
    assert "a came back" in found.reason


def test_an_iteration_that_vllm_did_not_run_is_none_and_one_that_it_decided_is(tmp_path: Path) -> None:
    mirror = _mirror(tmp_path / "record.jsonl")
    mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=3)
    mirror.decide(0, 1000)
    mirror.settle({}, {"a": False})  # not admitted: nothing ran
    assert mirror.close(1000 * US) == []
    mirror.blank(2000 * US)
    mirror.settle({"a": (10, 0), "nobody the rules know": (1, 0)}, {})
    mirror.close(3000 * US)
    _step(mirror)
    mirror.shift(mirror.now_ps, 5 * US)
    found = read_record(tmp_path / "record.jsonl")
    assert found.iterations == mirror.record.iterations and (found.cut, found.reason) == (
        0,
        "vLLM decided an iteration by itself",
    )
    assert [(it.members, it.otherwise, it.decided_ps // US) for it in found.iterations] == [
        ([(0, 10)], True, 2000),
        ([(0, 0)], False, 3000),
    ]
    assert found.iterations[-1].landed_ps == 4005 * US


def test_a_record_that_is_written_does_not_stay_in_memory(tmp_path: Path) -> None:
    mirror, whole = _mirror(tmp_path / "record.jsonl"), _mirror()
    for one in (mirror, whole):
        for k in range(700):
            one.add(str(k), Asked(0.5, False), prompt_tokens=10, output_tokens=2)
            for _ in range(2):
                _step(one)
                one.shift(one.now_ps, 7 * US)
            one.leave([str(k)])
        one.add("x", Asked(0.5, False), prompt_tokens=10, output_tokens=2)
        one.leave(["x"])
    assert len(mirror.record.iterations) <= 512 and not mirror.record.requests and not mirror._places
    assert read_record(tmp_path / "record.jsonl") == whole.record
    assert len(whole.record.iterations) == 1400 and whole.record.cut == 1400


@pytest.mark.parametrize("line", ["{half", "3", "[]"])
def test_a_line_of_a_record_that_is_none_is_said(line: str, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text(f'{{"kind": "tileq vllm record"}}\n{line}\n')
    with pytest.raises(InputError, match="line 2 is no JSON object; expected a record"):
        read_record(path)
