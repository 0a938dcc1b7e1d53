"""Synthetic files in every format, written from the same rows: one table puts all readers through one contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

# (prompt tokens, output tokens, arrival in whole milliseconds)
Row = tuple[int, int, int]
EPOCH_S = 1_760_000_000
START = datetime(2024, 5, 10, 0, 0, 0)


@dataclass(frozen=True)
class Sample:
    """How one format writes rows, whether it keeps arrivals, and what its reader must be told."""

    write: Callable[[Sequence[Row]], str] = field(repr=False)
    arrivals: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    kind: str = "csv"


def _csv(header: str, line: Callable[[int, Row], str]) -> Callable[[Sequence[Row]], str]:
    return lambda rows: "\n".join([header, *(line(i, row) for i, row in enumerate(rows))]) + "\n"


def _jsonl(record: Callable[[int, Row], dict[str, Any]]) -> Callable[[Sequence[Row]], str]:
    # A second line keeps a file of one request from being a plain document; both forms are read.
    return lambda rows: "".join(json.dumps(record(i, row)) + "\n" for i, row in enumerate(rows))


def _json(document: Callable[[Sequence[Row]], Any]) -> Callable[[Sequence[Row]], str]:
    return lambda rows: json.dumps(document(rows), indent=1)


def stamp(ms: int) -> str:
    """2024-05-10 00:00:00.0000000 and so on: seven fractional digits."""
    return (START + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S.%f") + "0"


def seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


def words(count: int) -> str:
    return " ".join(["w"] * count)


def count_words(text: str) -> int:
    return len(text.split())


def bench(rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    return {
        "backend": "vllm",
        "completed": len(rows),
        "failed": 0,
        "duration": 1.5,
        "total_input_tokens": sum(row[0] for row in rows),
        "total_output_tokens": sum(row[1] for row in rows),
        "input_lens": [row[0] for row in rows],
        "output_lens": [row[1] for row in rows],
        "errors": ["" for _ in rows],
        **more,
    }


def _aiperf(i: int, row: Row) -> dict[str, Any]:
    return {
        "metadata": {
            "request_start_ns": EPOCH_S * 10**9 + row[2] * 10**6,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
            "conversation_id": f"c{i % 3}",
        },
        "metrics": {
            "input_sequence_length": {"value": row[0], "unit": "tokens"},
            "output_sequence_length": {"value": row[1], "unit": "tokens"},
            "inter_chunk_latency": {"value": [4.5, 5.0], "unit": "ms"},
        },
        "error": None,
    }


def _guidellm(rows: Sequence[Row]) -> dict[str, Any]:
    requests = [
        {"prompt_tokens": p, "output_tokens": o, "request_start_time": EPOCH_S + ms / 1000, "request_id": str(i)}
        for i, (p, o, ms) in enumerate(rows)
    ]
    return {
        "metadata": {"version": 2},
        "benchmarks": [
            {
                "metrics": {"request_totals": {"successful": len(rows)}},
                "requests": {"successful": requests, "errored": [], "incomplete": [], "total": None},
            }
        ],
    }


def _genai(rows: Sequence[Row]) -> dict[str, Any]:
    def request(p: int, o: int, ms: int) -> dict[str, Any]:
        payload = json.dumps({"messages": [{"role": "user", "content": words(p)}]})
        chunk = json.dumps({"choices": [{"delta": {"content": words(o)}}]})
        return {
            "timestamp": EPOCH_S * 10**9 + ms * 10**6,
            "request_inputs": {"payload": payload},
            "response_timestamps": [EPOCH_S * 10**9 + ms * 10**6 + 5],
            "response_outputs": [{"response": f"data: {chunk}\n\n"}, {"response": "data: [DONE]\n\n"}],
        }

    return {"experiments": [{"experiment": {"mode": "concurrency"}, "requests": [request(*row) for row in rows]}]}


SAMPLES: dict[str, Sample] = {
    "azure-2023": Sample(_csv("TIMESTAMP,ContextTokens,GeneratedTokens", lambda i, r: f"{stamp(r[2])},{r[0]},{r[1]}")),
    "azure-2024": Sample(
        _csv("TIMESTAMP,ContextTokens,GeneratedTokens", lambda i, r: f"{stamp(r[2])[:-1]}+00:00,{r[0]},{r[1]}")
    ),
    "nanoflow": Sample(
        _csv("TIMESTAMP,ContextTokens,GeneratedTokens", lambda i, r: f"XXX,{r[0]},{r[1]}"), arrivals=False
    ),
    "vidur-lengths": Sample(
        _csv(
            "num_prefill_tokens, num_decode_tokens, num_total_tokens, pd_ratio",
            lambda i, r: f"{r[0]}, {r[1]}, {r[0] + r[1]}, {r[0] / max(r[1], 1)}",
        ),
        arrivals=False,
    ),
    "vidur-arrivals": Sample(
        _csv("arrived_at,num_prefill_tokens,num_decode_tokens", lambda i, r: f"{seconds(r[2])},{r[0]},{r[1]}")
    ),
    "burstgpt": Sample(
        _csv(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            lambda i, r: f"{seconds(r[2])},GPT-4,{r[0]},{r[1]},{r[0] + r[1]},Conversation log",
        )
    ),
    "burstgpt-3": Sample(
        _csv(
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
            lambda i, r: f"{seconds(r[2])},,7.5,ChatGPT,{r[0]},{r[1]},{r[0] + r[1]},API log",
        )
    ),
    "burstgpt-replay": Sample(
        _json(
            lambda rows: {
                str(i): {
                    "event_id": i,
                    "out_len": 4 * o,
                    "in_len": p,
                    "total_chunk_time": 0.25,
                    "record_time": ms / 1000 + 0.25,
                }
                for i, (p, o, ms) in enumerate(rows)
            }
        ),
        options={"chars_per_token": 4.0},
        kind="json",
    ),
    "mooncake": Sample(
        _jsonl(lambda i, r: {"timestamp": r[2], "input_length": r[0], "output_length": r[1], "hash_ids": [0, i]}),
        kind="jsonl",
    ),
    "bailian": Sample(
        _jsonl(
            lambda i, r: {
                "chat_id": i,
                "parent_chat_id": i - 1 if i % 2 else -1,
                "timestamp": r[2] / 1000,
                "input_length": r[0],
                "output_length": r[1],
                "type": "text",
                "turn": 1,
                "hash_ids": [i],
            }
        ),
        kind="jsonl",
    ),
    "bailian-offline": Sample(
        _jsonl(
            lambda i, r: {
                "request_id": i,
                "type": "text",
                "input_length": r[0],
                "output_length": r[1],
                "duration": 14000,
            }
        ),
        arrivals=False,
        kind="jsonl",
    ),
    "llmservingsim": Sample(
        _jsonl(
            lambda i, r: {
                "input_toks": r[0],
                "output_toks": r[1],
                "arrival_time_ns": r[2] * 10**6,
                "input_tok_ids": [7] * r[0],
            }
        ),
        kind="jsonl",
    ),
    "llmservingsim-run": Sample(
        _jsonl(
            lambda i, r: {
                "request_id": f"bench-{i}",
                "input_toks": r[0],
                "output_toks": r[1],
                "arrival_time": EPOCH_S + r[2] / 1000,
                "queued_ts": 27536.5 + i,
                "last_token_ts": 27554.0 + i,
            }
        ),
        kind="jsonl",
    ),
    "splitwise-sim": Sample(
        _csv(
            "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
            lambda i, r: f"{i},2,0,{seconds(r[2])},1,{r[0]},{r[1]}",
        )
    ),
    "sarathi-run": Sample(
        _csv(
            "Request Id,request_num_prefill_tokens,request_num_decode_tokens,request_e2e_time",
            lambda i, r: f"0_{i},{r[0]}.0,{r[1]}.0,1.25",
        ),
        arrivals=False,
    ),
    "lmbenchmark": Sample(
        _csv(
            "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time",
            lambda i, r: (
                f"{r[0]},{r[1]},0.5,1.5,{i % 2},{i},{EPOCH_S + r[2] // 1000}.{r[2] % 1000:03d},{EPOCH_S + 9e6}"
            ),
        )
    ),
    "vllm-bench": Sample(
        _json(
            lambda rows: bench(
                rows, tokenizer_id="t", request_rate="inf", start_times=[27536.5 + r[2] / 1000 for r in rows]
            )
        ),
        kind="json",
    ),
    "sglang-bench": Sample(
        lambda rows: json.dumps(bench(rows, dataset_name="random", request_rate=float("inf"))) + "\n",
        arrivals=False,
        kind="json",
    ),
    "distserve": Sample(
        _json(
            lambda rows: [
                {
                    "prompt_len": p,
                    "output_len": o,
                    "start_time": ms / 1000,
                    "end_time": ms / 1000 + 1,
                    "token_timestamps": [],
                }
                for p, o, ms in rows
            ]
        ),
        kind="json",
    ),
    "llmperf": Sample(
        _json(
            lambda rows: [
                {"error_code": None, "number_input_tokens": p, "number_output_tokens": o, "ttft_s": 0.5}
                for p, o, _ in rows
            ]
        ),
        arrivals=False,
        kind="json",
    ),
    "inference-perf": Sample(
        _json(
            lambda rows: [
                {
                    "start_time": ms / 1000,
                    "end_time": ms / 1000 + 1,
                    "request": "{}",
                    "info": {
                        "request_metrics": {"text": {"input_tokens": p}},
                        "response_metrics": {"output_tokens": o},
                        "input_tokens": p,
                    },
                    "error": None,
                }
                for p, o, ms in rows
            ]
        ),
        kind="json",
    ),
    "guidellm": Sample(_json(_guidellm), kind="json"),
    "aiperf": Sample(_jsonl(_aiperf), kind="jsonl"),
    "sharegpt": Sample(
        _json(
            lambda rows: [
                {
                    "id": str(i),
                    "conversations": [{"from": "human", "value": words(p)}, {"from": "gpt", "value": words(o)}],
                }
                for i, (p, o, _) in enumerate(rows)
            ]
        ),
        arrivals=False,
        options={"count_tokens": count_words},
        kind="json",
    ),
    "genai-perf": Sample(_json(_genai), options={"count_tokens": count_words}, kind="json"),
    "csv": Sample(
        _csv("id;Arrival (ms);input tokens;completion_tokens", lambda i, r: f"{i};{r[2]};{r[0]};{r[1]}"),
    ),
}


@pytest.fixture(scope="session")
def samples() -> dict[str, Sample]:
    return SAMPLES


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write text or bytes to a file whose name says nothing."""

    def writer(content: str | bytes, name: str = "data.bin") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return writer
