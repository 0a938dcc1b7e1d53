"""Signals, bounds, faults and the journal of a real run: nothing that was measured is lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.executor import RunFailedError, Sampling, Session, StopSwitch, TokenHashBackend, replay, serve
from tileq_engine.executor.backend import HostBatch, SampleRows, Step
from tileq_engine.executor.journal import RunJournal
from tileq_engine.executor.live import LiveTable, live_figures
from tileq_engine.executor.replaying import differences
from tileq_engine.executor.serving import snapshot
from tileq_engine.registry import policy
from tileq_engine.run import Run
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.01, token_s=1e-4)
CONFIG = EngineConfig(token_budget=24, max_num_seqs=6, kv_tokens=12 * 16)


def asked(n: int = 30, seed: int = 4, gap_s: float = 0.02) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(gap_s, n).cumsum(),
        prompt_tokens=g.integers(1, 40, n),
        output_tokens=g.integers(1, 30, n),
        tbt_limit_s=0.2,
    )


def serve_(requests: Requests, name: str = "sarathi", backend: Any = None, config: EngineConfig = CONFIG, **more: Any):
    given = {"clock": TIME, "live": False, "check": True, **more}
    return serve(requests, policy(name), backend or TokenHashBackend(12), config, **given)


class Killed(BaseException):
    """What a kill looks like from inside: nothing is caught, nothing is closed."""


class Dying(TokenHashBackend):
    """Dies at one step."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__(12)
        self.at, self.error = at, error

    def step(self, batch: HostBatch, rows: SampleRows) -> Step:
        if self.steps == self.at:
            raise self.error
        return super().step(batch, rows)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("name", ["vllm_v1", "slai"])
@pytest.mark.parametrize("at", [1, 37])
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, at: int, name: str, preemption: str) -> None:
    """The resumed run ends as the one that was never killed: times, tokens, counts, every iteration."""
    config = CONFIG.with_(preemption=preemption)
    whole = serve_(asked(), name, config=config)
    journal = tmp_path / "run.jsonl"
    with pytest.raises(Killed):
        serve_(asked(), name, Dying(at, Killed()), config, journal=journal)
    assert sum('"i"' in line for line in journal.read_text().splitlines()) == at
    with journal.open("a") as torn:
        torn.write('{"i":[1,2')  # the line that was being written
    resumed = serve_(asked(), name, config=config, journal=journal)
    assert np.array_equal(resumed.log["decision"], whole.log["decision"])
    assert np.array_equal(resumed.log["duration_ps"], whole.log["duration_ps"])
    assert np.array_equal(resumed.raw.finish_ps, whole.raw.finish_ps)
    assert all(np.array_equal(a, b) for a, b in zip(resumed.outputs, whole.outputs, strict=True))
    assert resumed.raw.counters == whole.raw.counters
    assert differences(resumed, replay(resumed)) == []


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    serve_(asked(), journal=journal)
    with pytest.raises(InputError, match="was begun with requests"):
        serve_(asked(seed=5), journal=journal)
    with pytest.raises(InputError, match="was begun with policy"):
        serve_(asked(), "vllm_v1", journal=journal)
    journal.write_text("{}\n")
    with pytest.raises(InputError, match="is no executor run"):
        serve_(asked(), journal=journal)
    assert serve_(asked(), journal=journal, resume=False).raw.stop_reason == "finished"


@pytest.mark.parametrize(
    ("old", "new"), [('"t":[', '"t":[9'), ('"r":[', '"q":['), ('"i":[', '{"i":['), (',"crc":', ',"crc":1'), ("{", "")]
)
def test_a_damaged_line_is_found_wherever_it_is(tmp_path: Path, old: str, new: str) -> None:
    """A token that has become another would be served as the model's own."""
    journal = tmp_path / "run.jsonl"
    whole = serve_(asked(), journal=journal)
    lines = journal.read_text().splitlines(keepends=True)
    damaged = lines[20].replace(old, new, 1)
    assert damaged != lines[20]
    journal.write_text("".join([*lines[:20], damaged, *lines[21:]]))
    with pytest.raises(InputError, match=r"run\.jsonl: line 21 is not as it was written; cut the file before it"):
        serve_(asked(), journal=journal)
    journal.write_text("".join(lines[:20]))  # as it says
    again = serve_(asked(), journal=journal)
    assert all(np.array_equal(a, b) for a, b in zip(again.outputs, whole.outputs, strict=True))


def test_a_failing_model_loses_nothing(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    with pytest.raises(
        RunFailedError, match=r"row 3 is odd; the 20 iterations before it are in .*run\.jsonl"
    ) as raised:
        serve_(asked(), backend=Dying(20, InputError("row 3 is odd")), journal=journal)
    served = raised.value.served
    assert served.raw.stop_reason == "failed" and len(served.log) == 20
    whole = serve_(asked())
    assert np.array_equal(served.log["decision"], whole.log["decision"][:20])
    assert serve_(asked(), journal=journal).raw.counters == whole.raw.counters


def test_an_error_of_the_device_is_named_too() -> None:
    with pytest.raises(RunFailedError, match="RuntimeError: CUDA out of memory") as raised:
        serve_(asked(), backend=Dying(5, RuntimeError("CUDA out of memory")))
    assert len(raised.value.served.log) == 5 and raised.value.served.run().finished >= 0


@pytest.mark.parametrize(
    ("number", "rule"), [(signal.SIGTERM, "drain"), (signal.SIGINT, "save"), (signal.SIGINT, "drain")]
)
def test_a_signal_drains_or_saves(number: int, rule: Any) -> None:
    before = signal.getsignal(number)
    seen = {"steps": 0}

    def at_twenty(session: Session) -> bool:
        seen["steps"] += 1
        if seen["steps"] == 20:
            os.kill(os.getpid(), number)
        return False

    served = serve_(asked(), until=at_twenty, on_stop=rule)
    assert signal.getsignal(number) is before
    status = served.raw.status
    if rule == "save":
        assert served.raw.stop_reason == "stopped" and len(served.log) == 20
        assert (status == 2).any()
    else:
        assert served.raw.stop_reason == "drained"
        assert set(status.tolist()) == {0, 3}  # those let in have finished, the others never came
    assert differences(served, replay(served)) == []


def test_a_drained_run_goes_on_drained(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    switch = StopSwitch("drain")

    def at_ten(session: Session) -> bool:
        if len(session.log) == 10:
            switch.ask()
        return False

    whole = serve_(asked(), until=at_ten, switch=switch, journal=journal)
    again = serve_(asked(), journal=journal)
    assert np.array_equal(again.raw.status, whole.raw.status)
    assert len(again.log) == len(whole.log)


def test_a_second_signal_saves() -> None:
    switch = StopSwitch("drain")
    switch.ask()
    switch.ask()
    assert switch.asked == "save" and switch()


@pytest.mark.parametrize(
    ("bound", "reason"),
    [({"stop_iterations": 7}, "iterations"), ({"stop_time_s": 0.3}, "time"), ({"stop_backlog": 5}, "backlog")],
)
def test_bounds_hold(bound: dict[str, Any], reason: str) -> None:
    from tileq_engine import simulate

    config = CONFIG.with_(**bound)
    served = serve_(asked(), config=config)
    expected = simulate(asked(), policy("sarathi"), TIME, config, mode="stepped")
    assert served.raw.stop_reason == expected.stop_reason == reason
    assert served.raw.counters == expected.counters


def test_the_run_is_a_run(tmp_path: Path) -> None:
    """It saves and loads losslessly, and its metrics are those of any run."""
    run = serve_(asked()).run()
    again = Run.load(run.save(tmp_path / "real.npz"))
    for table in ("requests", "samples"):
        ours, theirs = getattr(run, table), getattr(again, table)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert again.info == run.info and again.counters == run.counters
    assert run.to_dict("none")["ttft_s"] == again.to_dict("none")["ttft_s"]
    json.dumps(again.to_dict("none"))


def test_stop_rules_end_a_request_before_its_limit() -> None:
    """The token of a stop rule is delivered and is the last; the simulator follows with the lengths there were."""
    requests = asked()
    free = serve_(requests)
    wanted = int(np.bincount(np.concatenate(free.outputs)).argmax())
    backend = TokenHashBackend(12, eos_token_ids=(wanted,))
    stopped = serve_(requests, backend=backend, sampling=Sampling())
    cut = 0
    for short, full in zip(stopped.outputs, free.outputs, strict=True):
        ends = np.flatnonzero(full == wanted)
        expected = full[: ends[0] + 1] if ends.size else full
        assert short.tolist() == expected.tolist()
        cut += len(short) < len(full)
    assert cut > 0
    assert stopped.raw.counters["finished"] == len(requests)
    assert differences(stopped, replay(stopped)) == []
    by_rule = serve_(requests, sampling=Sampling(stop_sequences=((wanted,),)))
    assert all(np.array_equal(a, b) for a, b in zip(by_rule.outputs, stopped.outputs, strict=True))


def test_what_a_real_model_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="convention is 'paper'"):
        serve_(asked(), config=CONFIG.with_(convention="paper"))
    with pytest.raises(InputError, match="kv_tokens is 1600, the model's cache holds 192"):
        serve_(asked(), config=CONFIG.with_(kv_tokens=1600))
    with pytest.raises(InputError, match="block_tokens is 8"):
        serve_(asked(), config=CONFIG.with_(block_tokens=8))
    warm = Requests.from_arrays(arrival_ps=[0], prompt_tokens=[5], output_tokens=[2], prefilled_tokens=[5])
    with pytest.raises(InputError, match="arrives with its KV"):
        serve_(warm)
    with pytest.raises(InputError, match="prompt 0 has 3 tokens"):
        serve_(asked(), prompts=[np.array([1, 2, 3])])
    with pytest.raises(InputError, match=r"outside 0\.\.96"):
        one = Requests.from_arrays(arrival_ps=[0], prompt_tokens=[2], output_tokens=[2])
        serve_(one, prompts=[np.array([1, 200])])
    with pytest.raises(InputError, match="needs a probe"):
        serve_(asked(), clock="steady")
    with pytest.raises(InputError, match="clock is 'sundial'"):
        serve_(asked(), clock="sundial")


def test_a_session_takes_and_loses_requests() -> None:
    session = Session(TokenHashBackend(12), policy("sarathi"), CONFIG, clock="busy", capacity=8, check=True)
    first, second = (session.submit([1, 2, 3, k], output_tokens=4) for k in (4, 5))
    session.step()
    session.cancel(first)
    waiting = session.submit([9] * 10, output_tokens=50)
    session.scheduler.arrive(session.scheduler.now_ps)
    session.cancel(waiting)
    while session.step() is not None:
        pass
    assert session.executor.histories.generated(second).size == 4
    assert session.executor.memory.cache.used_blocks == 0 and len(session.scheduler) == 0
    served = snapshot(session)
    assert served.raw.status.tolist() == [4, 3, 4] and served.raw.reject_reason.tolist() == [5, 0, 5]
    assert served.run().rejections() == {"cancelled": 2}
    with pytest.raises(InputError, match="is finished; only"):
        session.cancel(second)


def test_a_session_of_submitted_requests_begins_anew(tmp_path: Path) -> None:
    """Its journal outlives it, and is not taken for something from which it could go on."""
    where = tmp_path / "session.jsonl"
    journal = RunJournal(where, {"what": "a session"})
    session = Session(TokenHashBackend(12), policy("sarathi"), CONFIG, clock="busy", capacity=8, journal=journal)
    session.submit([1, 2, 3], output_tokens=4)
    for _ in range(4):
        session.step()
    journal.close()
    again = RunJournal(where, {"what": "a session"})
    assert len(list(again.iterations())) == 4
    with pytest.raises(InputError, match=r"session\.jsonl holds 4 lines of an earlier session"):
        Session(TokenHashBackend(12), policy("sarathi"), CONFIG, clock="busy", capacity=8, journal=again)
    again.close()


def test_the_live_table_shows_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(TokenHashBackend(12), policy("sarathi"), CONFIG, clock="busy", requests=asked(5, gap_s=0.0))
    session.scheduler.arrive(10**11)
    for _ in range(3):
        session.step()
    figures = live_figures(session)
    assert {"waiting", "running", "KV", "TTFT", "TBT", "batch"} <= set(figures)
    with LiveTable(session, True) as table:
        table.step()
    assert capsys.readouterr().out == ""  # it is on stderr
    with LiveTable(session, None) as table:  # no terminal: nothing at all
        table.step()
    assert capsys.readouterr().err == ""
