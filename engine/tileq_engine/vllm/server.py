"""An OpenAI-compatible vLLM server on the loopback: started, watched, and ended with whoever started it."""

from __future__ import annotations

__all__ = ["Server", "ServerError", "free_port", "small_tokenizer"]

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tileq_theory.errors import InputError

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
_SHOWN = 12  # lines of a log that an error shows


class ServerError(InputError):
    """The server did not come up, or went away; the message has the end of its log and where all of it is."""


def free_port() -> int:
    """Return a TCP port of the loopback that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """`vllm serve FOLDER` with a scheduler of Tileq's, in a process group of its own; use it in a `with`.

    Parameters
    ----------
    folder
        The model: config.json, and a tokenizer unless `options` say otherwise.
    scheduler
        A class of `tileq_engine.vllm`, None: vLLM's own.
    tileq
        The scheduler's settings.
    options
        vLLM's own, as on its command line.
    log
        File for what the server says; kept.
    start_s
        Seconds that it may take to come up.
    environment
        Variables in place of the process's own.

    Raises
    ------
    ServerError
        It ended, or was not there after `start_s`.
    """

    def __init__(
        self,
        folder: str | Path,
        scheduler: str | None,
        tileq: Mapping[str, Any] | None,
        options: Sequence[str],
        log: Path,
        *,
        start_s: float = 300.0,
        environment: Mapping[str, str] | None = None,
        name: str = "model",
    ) -> None:
        self.log, self.name, self.folder = log, name, str(folder)
        self.port = free_port()
        own = () if scheduler is None else ("--scheduler-cls", f"tileq_engine.vllm.{scheduler}")
        settings = () if not tileq else ("--additional-config", json.dumps({"tileq": dict(tileq)}))
        where = ("--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", name)
        self.command = [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), *where),
            *(*own, *settings, *options),
        ]
        variables = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)  # this process may have its engine inside
        variables["VLLM_NO_USAGE_STATS"] = "1"
        self._lines = log.open("ab")
        self._process = subprocess.Popen(
            self.command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=self._lines,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._guard = guarded(self._process.pid)
        try:
            self._wait(start_s)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process, which leads a group of its own."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def text(self) -> str:
        """Return what the server has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str, timeout_s: float = 30.0) -> tuple[int, str]:
        """Return status and body of a GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = 120.0) -> http.client.HTTPResponse:
        """Return the answer to a POST of `body`; the caller reads it, or closes it and is gone."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        connection.request("POST", path, json.dumps(dict(body)), {"Content-Type": "application/json"})
        return connection.getresponse()

    def metrics(self, prefix: str = "tileq:") -> dict[str, float]:
        """Return the gauges and counters of /metrics whose name begins with `prefix`, labels dropped."""
        found: dict[str, float] = {}
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(prefix):
                name, _, value = line.rpartition(" ")
                found[name.partition("{")[0].removeprefix(prefix)] = float(value)
        return found

    def stop(self, patience_s: float = 15.0) -> None:
        """End the server and all its processes: asked first, then killed."""
        for how, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 15.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                if not _group_is_there(self._process.pid, wait_s):
                    break
        self._let_go()

    def kill(self) -> None:
        """End it as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(15)
        self._let_go()

    def _let_go(self) -> None:
        self._lines.close()
        self._guard.kill()
        self._guard.wait(15)
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def failure(self, what: str) -> ServerError:
        """Return an error that says `what`, and shows the end of the log."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        telling = [line for line in lines if "tileq_theory.errors." in line or "Error:" in line][-3:]
        shown = "\n".join(f"  {line[:300]}" for line in [*telling, *lines[-_SHOWN:]])
        return ServerError(f"{what}; its log is {self.log}:\n{shown}")

    def _wait(self, start_s: float) -> None:
        end = time.monotonic() + start_s
        while time.monotonic() < end:
            if not self.alive:
                raise self.failure(f"the vLLM server ended with code {self._process.returncode} before it was ready")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health", 5.0)[0] == 200:
                    return
            time.sleep(0.3)
        raise self.failure(f"the vLLM server did not answer within {start_s:g} s")


def guarded(group: int) -> subprocess.Popen[bytes]:
    """Return a process that ends `group` when this one is gone, however it went: it waits for the end of its input.

    vLLM's API process may outlive its engine when it is asked to end; so it is killed after five seconds.
    """
    script = 'read nothing; kill -s TERM -- "-$0"; sleep 5; kill -s KILL -- "-$0"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _group_is_there(group: int, wait_s: float) -> bool:
    """Return whether a process of the group is left after `wait_s` seconds at most."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.1)
    return True


def has_tokenizer(folder: str | Path) -> bool:
    """Return whether a model's folder has a tokenizer."""
    return any((Path(folder) / name).is_file() for name in _TOKENIZERS)


def small_tokenizer(folder: str | Path, vocabulary: int) -> None:
    """Write a tokenizer of `vocabulary` words into a folder: token k is the word "tk", and a word is a token."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"t{k}": k for k in range(3, vocabulary)}
    special = [
        {"id": k, "content": w, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False}
        for w, k in list(words.items())[:3]
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "Whitespace"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 20, **names}
    where = Path(folder)
    (where / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (where / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
