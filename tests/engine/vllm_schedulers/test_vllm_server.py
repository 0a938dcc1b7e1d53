"""A real server on the loopback: tiers over HTTP, metrics, a client that goes away, a kill and a new start."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.campaign]
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")

from vllm_harness import model_with_weights  # noqa: E402

_START_S = 240


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """`vllm serve` of the small Llama with SLAI, on the loopback."""

    def __init__(self, folder: str) -> None:
        self.port = free_port()
        settings = {"tileq": {"log_every_s": 1}}
        command = [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder),
            *(
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--skip-tokenizer-init",
                "--enforce-eager",
                "--dtype",
                "float32",
            ),
            *("--max-model-len", "1024", "--max-num-seqs", "8", "--max-num-batched-tokens", "64"),
            *("--block-size", "32", "--num-gpu-blocks-override", "201", "--served-model-name", "small"),
            *("--scheduler-cls", "tileq_engine.vllm.SlaiScheduler", "--additional-config", json.dumps(settings)),
        ]
        quiet = {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        environment = {**os.environ, **quiet, **threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        os.set_blocking(self.process.stdout.fileno(), False)  # type: ignore[union-attr]
        self.log = ""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            assert self.process.poll() is None, self.read()
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.5)
                self.read()
        raise AssertionError(f"the server did not start: {self.read()[-3000:]}")

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError, TypeError):
            self.log += self.process.stdout.read() or ""  # type: ignore[union-attr]
        return self.log

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def post(self, **body: Any) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        plain = {"model": "small", "ignore_eos": True, "temperature": 0, "detokenize": False, "return_token_ids": True}
        text = json.dumps({**plain, "prompt": list(range(3, 40)), **body})
        connection.request("POST", "/v1/completions", text, {"Content-Type": "application/json"})
        return connection.getresponse()

    def tokens(self, **body: Any) -> list[int]:
        answer = self.post(**body)
        text = answer.read().decode()
        assert answer.status == 200, text
        found: list[int] = json.loads(text)["choices"][0]["token_ids"]
        return found

    def metric(self, name: str) -> float | None:
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{name}{{"):
                return float(line.rsplit(" ", 1)[1])
        return None

    def stop(self, how: int) -> None:
        os.killpg(self.process.pid, how)
        self.process.wait(30)


@pytest.fixture(scope="module")
def folder() -> str:
    return model_with_weights()


def test_tiers_faults_and_metrics_over_http(folder: str) -> None:
    server = Server(folder)
    try:
        plain = server.tokens(max_tokens=8)
        assert len(plain) == 8
        paying = {"tileq_tier": "paying", "tileq_tbt_limit_s": 0.08}
        assert server.tokens(max_tokens=8, vllm_xargs=paying) == plain

        refused = server.post(max_tokens=8, vllm_xargs={"tileq_tier": "gold"})
        text = refused.read().decode()
        assert refused.status >= 500 or '"finish_reason":"error"' in text.replace(" ", ""), text

        leaving = server.post(max_tokens=900, stream=True)  # reads the head, then goes away
        leaving.read(10)
        leaving.close()
        end = time.monotonic() + 30
        while (server.metric("vllm:num_requests_running") or 0) > 0 and time.monotonic() < end:
            time.sleep(0.2)
        assert server.metric("vllm:num_requests_running") == 0.0
        server.tokens(max_tokens=300)  # long enough for the scheduler to write its report
        assert (server.metric("vllm:num_requests_waiting") or 0) == 0.0
        log = server.read()
        assert "tileq: slai(" in log and "tier 'gold' is unknown" in log, log[-2000:]
    finally:
        server.stop(signal.SIGKILL)

    again = Server(folder)  # killed and started again: nothing is left of what was, answers are the same
    try:
        assert again.tokens(max_tokens=8) == plain
    finally:
        again.stop(signal.SIGTERM)
