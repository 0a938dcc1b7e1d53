"""`vllm bench serve` as the client of a server: requests of given lengths, Poisson arrivals, what the client saw."""

from __future__ import annotations

__all__ = ["Seen", "bench_serve"]

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_engine.requests import Requests
from tileq_engine.vllm.server import Server, ServerError
from tileq_theory.errors import InputError, positive, positive_int

_FIELDS = {
    "--timed-trace-label-timestamp": "timestamp",
    "--timed-trace-label-input-length": "input_length",
    "--timed-trace-label-output-length": "output_length",
    "--timed-trace-label-hash-ids": "hash_ids",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw of its requests, seconds; those that failed are left out.

    `duration_s` is from the first request sent to the last answer; `output_tokens` are all tokens it was sent.
    """

    completed: int
    failed: int
    duration_s: float
    output_tokens: int
    ttft_s: Float[np.ndarray, "request"]
    itl_s: Float[np.ndarray, "gap"]

    @property
    def throughput_per_s(self) -> float:
        """Requests answered over the whole duration, with the times in which the engine fills and empties."""
        return self.completed / self.duration_s if self.duration_s > 0 else 0.0


def bench_serve(
    server: Server,
    asked: Requests,
    folder: Path,
    key: str,
    *,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    seed: int = 0,
    extra: Mapping[str, Any] | None = None,
    timeout_s: float = 1800.0,
) -> Seen:
    """Send `asked` to the server and return what the client saw; its files are kept in `folder` under `key`.

    The requests have exactly the lengths asked for (prompts of token ids, ends of sequence ignored). They come in a
    Poisson process of `rate_per_s` scaled to that very rate over the whole, or all at once, at most `concurrency` in
    the system.

    Raises
    ------
    ServerError
        The client failed, or no request of it was answered.
    """
    trace, result, log = (folder / f"{key}{end}" for end in (".trace.jsonl", ".bench.json", ".client.log"))
    _write_trace(trace, asked, seed)
    result.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
        *("--backend", "vllm", "--base-url", server.url, "--endpoint", "/v1/completions"),
        *("--model", server.name, "--tokenizer", server.folder, "--temperature", "0"),
        *("--dataset-name", "timed_trace", "--dataset-path", str(trace), "--no-self-timed"),
        *("--timed-trace-chunk-hash-size", str(int(asked.prompt_tokens.max()))),
        *(word for pair in _FIELDS.items() for word in pair),
        *("--num-prompts", str(len(asked)), "--ignore-eos", "--disable-tqdm", "--num-warmups", "0"),
        *("--request-rate", "inf" if rate_per_s is None else repr(positive("rate_per_s", rate_per_s))),
        *("--seed", str(seed), "--save-result", "--save-detailed"),
        *("--result-dir", str(folder), "--result-filename", result.name),
    ]
    if concurrency is not None:
        command += ["--max-concurrency", str(positive_int("concurrency", concurrency))]
    if extra:
        command += ["--extra-body", json.dumps(dict(extra))]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "0"}
    variables |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as lines:
        client = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=subprocess.STDOUT,
        )
        try:
            code = client.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerError(f"the client was not done after {timeout_s:g} s; its log is {log}") from None
        finally:
            if client.poll() is None:
                client.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    client.wait(10)
    if not server.alive:
        raise server.failure("the vLLM server went away while it was driven")
    if code != 0 or not result.is_file():
        end = "\n".join(f"  {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-6:])
        raise ServerError(f"vllm bench serve ended with code {code}; its log is {log}:\n{end}")
    return seen_of(json.loads(result.read_text(encoding="utf-8")), log)


def _write_trace(path: Path, asked: Requests, seed: int) -> None:
    """Write the requests as vLLM's timed trace: a prompt is one chunk of its own, so that nobody shares a prefix."""
    rows = zip(asked.prompt_tokens.tolist(), asked.output_tokens.tolist(), strict=True)
    base = 1_000_000 * (seed + 1)
    lines = [
        json.dumps({"timestamp": 0, "input_length": p, "output_length": o, "hash_ids": [base + i]})
        for i, (p, o) in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def seen_of(result: Mapping[str, Any], where: Path) -> Seen:
    """Return what a detailed result of `vllm bench serve` says; raise `ServerError` where nobody was answered."""
    missing = [name for name in ("completed", "duration", "ttfts", "itls", "errors") if name not in result]
    if missing:
        raise InputError(f"{where}: the result of vllm bench serve lacks {', '.join(missing)}; is it of vLLM 0.32?")
    errors = [str(e) for e in result["errors"]]
    if not result["completed"]:
        first = next((e.strip().splitlines()[-1] for e in errors if e.strip()), "no reason was given")
        raise ServerError(f"none of {len(errors)} requests was answered ({first}); the client's log is {where}")
    answered = [not e for e in errors]
    ttft = [t for t, good in zip(result["ttfts"], answered, strict=True) if good]
    itl = [gap for gaps, good in zip(result["itls"], answered, strict=True) if good for gap in gaps]
    return Seen(
        completed=int(result["completed"]),
        failed=len(errors) - int(result["completed"]),
        duration_s=float(result["duration"]),
        output_tokens=int(result["total_output_tokens"]),
        ttft_s=np.asarray(ttft, dtype=float),
        itl_s=np.asarray(itl, dtype=float),
    )
