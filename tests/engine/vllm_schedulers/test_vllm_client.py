"""What a client's result and a scheduler's record say, and how a server is started: without one. No vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine.vllm.bench_client import _write_trace, seen_of
from tileq_engine.vllm.measured import moments, part_of, rate_while_waiting_per_s, saturated_rate_per_s
from tileq_engine.vllm.recording import Iteration, Record, Told
from tileq_engine.vllm.server import Server, ServerError, free_port, has_tokenizer, small_tokenizer
from tileq_theory.errors import InputError

MS = 1_000_000_000
RESULT: dict[str, Any] = {
    "completed": 2,
    "duration": 4.0,
    "total_output_tokens": 5,
    "ttfts": [0.1, 0.0, 0.3],
    "itls": [[0.01, 0.02], [], [0.03]],
    "errors": ["", "Bad Gateway", ""],
}


def test_a_failed_request_counts_for_no_latency() -> None:
    seen = seen_of(RESULT, Path("log"))
    assert (seen.completed, seen.failed, seen.throughput_per_s) == (2, 1, 0.5)
    assert seen.ttft_s.tolist() == [0.1, 0.3] and seen.itl_s.tolist() == [0.01, 0.02, 0.03]


def test_nobody_answered_is_an_error_with_the_reason() -> None:
    with pytest.raises(ServerError, match=r"none of 3 requests was answered \(refused\)"):
        seen_of({**RESULT, "completed": 0, "errors": ["trace\nrefused"] * 3}, Path("log"))
    with pytest.raises(InputError, match="lacks ttfts"):
        seen_of({k: v for k, v in RESULT.items() if k != "ttfts"}, Path("log"))


def test_prompts_share_no_prefix(tmp_path: Path) -> None:
    from tileq_engine.requests import Requests

    asked = Requests.from_arrays(arrival_ps=[0, 0], prompt_tokens=[7, 9], output_tokens=[1, 2])
    _write_trace(tmp_path / "t.jsonl", asked, seed=3)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(r["input_length"], r["output_length"]) for r in rows] == [(7, 1), (9, 2)]
    assert rows[0]["hash_ids"] != rows[1]["hash_ids"]


def told(name: str, arrival: int, after: int, prompt: int, output: int) -> Told:
    return Told(name, arrival, after, prompt, output, output, 0.5, 0, False, 0)


def test_moments_are_those_of_the_outputs() -> None:
    """Two chunks, then two decodes; the other has its only token with its prefill."""
    record = Record(requests=[told("a", 0, -1, 100, 3), told("b", 5 * MS, 0, 10, 1)])
    rows = [([(0, 64)], 10), ([(0, 36), (1, 10)], 20), ([(0, 0)], 26), ([(0, 0)], 31)]
    record.iterations = [Iteration(at * MS - 1, members, (1, 0, 0, 1), at * MS, (at + 1) * MS) for members, at in rows]
    ttft, gaps = moments(record)
    assert ttft.tolist() == pytest.approx([0.021, 0.016])
    assert gaps.tolist() == pytest.approx([0.006, 0.005])
    part = part_of(record, 1, 2)
    assert len(part.iterations) == 1 and part.iterations[0].members == [(0, 10)]
    assert saturated_rate_per_s(record, 10.0) is None


def test_the_saturated_rate_is_tokens_over_time_while_somebody_waits() -> None:
    """A request of 10 tokens an iteration of 20 ms, all there from the start: 50 a second."""
    count = 120
    record = Record(requests=[told(str(i), 0, -1, 10, 1) for i in range(count)])
    record.iterations = [
        Iteration(20 * k * MS, [(k, 10)], (10, 55, 0, 1), 20 * (k + 1) * MS, 20 * (k + 1) * MS) for k in range(count)
    ]
    assert saturated_rate_per_s(record, 10.0) == pytest.approx(50.0)


def test_the_rate_leaves_out_stretches_in_which_nobody_waits_and_the_filling_after_them() -> None:
    """50/s while somebody waits; in the hole, and for 25 iterations after it, iterations are ten times as long."""
    waits = np.ones(400, dtype=bool)
    waits[150:170] = False
    lasted = np.full(400, 0.02)
    lasted[150:195] = 0.2
    ends = np.cumsum(lasted)
    tokens = np.full(400, 10.0)
    assert rate_while_waiting_per_s(tokens, ends, waits, 10.0) == pytest.approx(50.0)
    assert rate_while_waiting_per_s(tokens, ends, np.ones(400, dtype=bool), 10.0) < 25.0
    waits[::60] = False
    assert rate_while_waiting_per_s(tokens, ends, waits, 10.0) == pytest.approx(50.0)
    waits[::30] = False
    assert rate_while_waiting_per_s(tokens, ends, waits, 10.0) is None, "too little is left"
    late = np.arange(400) >= 150
    assert rate_while_waiting_per_s(tokens, np.cumsum(np.full(400, 0.02)), late, 10.0) == pytest.approx(50.0)


def test_a_server_that_ends_at_once_is_a_clear_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'tileq_theory.errors.InputError: the plan is for a h100'\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(ServerError, match=r"ended with code 3 before it was ready") as caught:
        Server(tmp_path, "SlaiScheduler", {}, [], tmp_path / "server.log")
    assert "the plan is for a h100" in str(caught.value) and "server.log" in str(caught.value)


def test_a_server_that_never_answers_is_ended_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\nwhile :; do sleep 0.2; done\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    original = Server.stop
    monkeypatch.setattr(Server, "stop", lambda self: original(self, patience_s=0.5))
    with pytest.raises(ServerError, match=r"did not answer within 1 s"):
        Server(tmp_path, None, None, [], tmp_path / "server.log", start_s=1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_port_is_free_and_a_tokenizer_is_one(tmp_path: Path) -> None:
    assert 0 < free_port() < 65536
    assert not has_tokenizer(tmp_path)
    small_tokenizer(tmp_path, 16)
    assert has_tokenizer(tmp_path)
    words = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(words.values()) == list(range(16))
    assert np.unique(list(words)).size == 16


HEALTHY = """#!{python}
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as an API process that hangs
open({pid!r}, "w").write(str(os.getpid()))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""
PARENT = """
import sys, time
from pathlib import Path
from tileq_engine.vllm.server import Server
sys.executable = {fake!r}
stop = Server.stop
Server.stop = lambda self: stop(self, patience_s=1.0)
with Server({folder!r}, None, None, [], Path({folder!r}) / "server.log"):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_the_server_ends_with_the_command_that_started_it(how: signal.Signals, tmp_path: Path) -> None:
    fake, pid = tmp_path / "python", tmp_path / "pid"
    fake.write_text(HEALTHY.format(python=sys.executable, pid=str(pid)))
    fake.chmod(0o755)
    script = PARENT.format(fake=str(fake), folder=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
    child = int(pid.read_text())
    os.kill(child, 0)
    parent.send_signal(how)
    parent.wait(30)
    end = time.monotonic() + 20
    while time.monotonic() < end and Path(f"/proc/{child}").exists() and "Z" not in _state(child):
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists() or _state(child) == "Z"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
