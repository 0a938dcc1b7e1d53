"""Log lines as servers write them, from rows: what a reader must give back is what went in."""

from __future__ import annotations

__all__ = ["Iteration", "interleaved", "sglang_decode", "sglang_prefill", "stats_v0", "stats_v1", "vllm_line"]

from collections.abc import Sequence
from dataclasses import dataclass

NOISE = (
    "INFO 04-22 12:53:55 [loggers.py:118] something else entirely",
    '(APIServer pid=7) INFO:     127.0.0.1:4444 - "POST /v1/completions HTTP/1.1" 200 OK',
    "",
    "Iteration of the loop",  # names no iteration in parentheses
    "\x1b[0;36m(EngineCore_DP0 pid=9)\x1b[0;0m WARNING cudagraph dispatching",
)


@dataclass(frozen=True)
class Iteration:
    """One step as the log has it."""

    number: int
    context_requests: int
    context_tokens: int
    requests: int
    tokens: int
    hundredths_ms: int
    pid: int = 17
    engine: int = 0
    dummy: bool = False
    usage: int | None = None  # tenths of a percent

    @property
    def ms(self) -> str:
        return f"{self.hundredths_ms // 100}.{self.hundredths_ms % 100:02d}"


def vllm_line(step: Iteration) -> str:
    """The line of PR #31193, or that of #46647 where the step has a usage."""
    body = (
        f"Iteration({step.number}): {step.context_requests} context requests, {step.context_tokens} context tokens, "
        f"{step.requests} generation requests, {step.tokens} generation tokens, iteration elapsed time: {step.ms} ms"
    )
    body += " (dummy)" if step.dummy else ""
    stamp = "INFO 04-22 12:53:55"
    if step.usage is None:
        return f"(EngineCore_DP{step.engine} pid={step.pid}) {stamp} [core.py:359] {body}"
    usage = f", GPU KV cache usage: {step.usage // 10}.{step.usage % 10}%"
    return f"(APIServer pid={step.pid}) {stamp} [loggers.py:190] Engine {step.engine:03d}: {body}{usage}"


def stats_v1(
    second: int, prompt: float, output: float, running: int, waiting: int, usage: float, engine: int = 0
) -> str:
    clock = f"04-22 {12 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return (
        f"(APIServer pid=7) INFO {clock} [loggers.py:118] Engine {engine:03d}: Avg prompt throughput: {prompt:.1f} "
        f"tokens/s, Avg generation throughput: {output:.1f} tokens/s, Running: {running} reqs, "
        f"Waiting: {waiting} reqs, "
        f"GPU KV cache usage: {usage:.1f}%, Prefix cache hit rate: 0.0%"
    )


def stats_v0(second: int, prompt: float, output: float, running: int, swapped: int, pending: int, usage: float) -> str:
    return (
        f"INFO 04-22 12:{second // 60:02d}:{second % 60:02d} metrics.py:351] Avg prompt throughput: "
        f"{prompt:.1f} tokens/s, "
        f"Avg generation throughput: {output:.1f} tokens/s, Running: {running} reqs, Swapped: {swapped} reqs, Pending: "
        f"{pending} reqs, GPU KV cache usage: {usage:.1f}%, CPU KV cache usage: 0.0%."
    )


def sglang_prefill(second: int, new: int, queued: int, rate: float | None = None, rank: str = " TP0") -> str:
    told = "" if rate is None else f", cuda graph: False, input throughput (token/s): {rate:.2f}"
    return (
        f"[2025-07-18 15:{second // 60:02d}:{second % 60:02d}{rank}] Prefill batch. #new-seq: 1, #new-token: {new}, "
        f"#cached-token: 35, token usage: 0.00, #running-req: 0, #queue-req: {queued}{told}"
    )


def sglang_decode(second: int, running: int, token: int, rate: float, rank: str = " TP0", extra: str = "") -> str:
    return (
        f"[2025-07-18 15:{second // 60:02d}:{second % 60:02d}{rank}] Decode batch. #running-req: {running}, "
        f"#token: {token}, "
        f"token usage: 0.82, {extra}cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 3"
    )


def interleaved(lines: Sequence[str], noise: Sequence[int]) -> str:
    """Return the lines with noise between them: `noise[i]` picks what stands before line i."""
    text = []
    for line, pick in zip(lines, noise, strict=True):
        if pick:
            text.append(NOISE[(pick - 1) % len(NOISE)])
        text.append(line)
    return "\n".join(text) + "\n"
