"""Published measurements as profiles, one function a source."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tileq_profiling.fit import recover_chunk_times
from tileq_profiling.operators import aiconfigurator_profile, llmservingsim_profile
from tileq_profiling.profile import Conditions, Profile
from tileq_theory.hardware import kv_capacity_tokens, load_gpu, load_model, roofline
from tileq_theory.iteration_time import IterationTime

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Source:
    """How one calibration is made: its profile, and the model that lends what the profile cannot tell."""

    profile: Callable[[Path], Profile]
    fill_from: Callable[[], IterationTime] | None = None


def _csv(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def slai(data: Path) -> Profile:
    """Mistral-7B, RTX 6000 Ada: per-chunk times of a lone 2048-token prefill, recovered from published means."""
    rows = _csv(data / "slai/plot1_results.csv")
    times = recover_chunk_times(
        prompt_tokens=2048,
        chunk_tokens=[int(r["chunk"]) for r in rows],
        ttft_s=[1e-3 * float(r["ttft_ms"]) for r in rows],
        mean_iteration_s=[1e-3 * float(r["batch_ms"]) for r in rows],
    )
    source = "agrimUT/SLAI 5098a7a, plot1_results.csv (Fig. 5a of arXiv 2508.01002)"
    notes = ("per-chunk times recovered from median TTFT and mean iteration of a lone 2048-token prefill",)
    conditions = Conditions(
        device="rtx-6000-ada", model="mistral-7b-instruct-v0.2", dtype="fp16", source=source, notes=notes
    )
    return times.profile(conditions)


def rtx_4090(data: Path) -> Profile:
    """Llama-3.1-8B, RTX 4090: vLLM layer kernels put together."""
    folder = data / "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1"
    model = load_model("llama-3.1-8b")
    return llmservingsim_profile(
        _csv(folder / "dense.csv"),
        _csv(folder / "attention.csv"),
        _csv(folder / "per_sequence.csv"),
        model,
        most_kv_tokens=kv_capacity_tokens(load_gpu("rtx-4090"), model),
        conditions=Conditions(
            device="rtx-4090",
            model="llama-3.1-8b",
            libraries={"vllm": "0.19.0"},
            source="casys-kaist/LLMServingSim 5daddb2, layer profile of vLLM 0.19.0",
        ),
    )


def qwen3_4b(data: Path) -> Profile:
    """Qwen3-4B, A100: whole prefill and decode steps."""
    file = data / "llm_exec_time_predictor/benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json"
    rows: list[tuple[float, ...]] = []
    for r in json.loads(file.read_text(encoding="utf-8"))["results"]:
        batch, length = r["batch_size"], r["input_len"]
        rows.append((batch * length, batch * length * (length + 1) / 2, 0, batch, r["prefill_latency"], batch * length))
        if "median_decode_latency" in r:
            context = length + r["output_len"] / 2  # the median step is the middle one
            rows.append((batch, 0, batch * context, batch, r["median_decode_latency"], 0))
    source = "vikranth22446/llm_execution_time_predictor 2eb65e7, Qwen3-4B on A100 (whole steps)"
    return _profile(rows, Conditions(device="a100-sxm-80gb", model="qwen3-4b", source=source))


def _profile(rows: list[tuple[float, ...]], conditions: Conditions, *, kv_known: bool = True) -> Profile:
    n, pairs, kv_tokens, sequences, seconds, prefill = np.array(rows, dtype=float).T
    return Profile.of(
        tokens=n,
        pairs=pairs,
        kv_tokens=kv_tokens if kv_known else None,
        sequences=sequences,
        seconds=seconds,
        prefill_tokens=prefill,
        conditions=conditions,
    )


def yi_34b(data: Path) -> Profile:
    """Yi-34B on two A100: lone prefills and decode batches, whose contexts the source does not record."""
    rows: list[tuple[float, ...]] = []
    for r in _csv(data / "sarathi_osdi24/figure-2/prefill.csv"):
        n = float(r["batch_num_prefill_tokens"])
        rows.append((n, n * (n + 1) / 2, 0, 1, float(r["batch_execution_time"]), n))
    for r in _csv(data / "sarathi_osdi24/figure-2/decode.csv"):
        n = float(r["batch_num_decode_tokens"])
        rows.append((n, 0, 0, n, float(r["batch_execution_time"]), 0))
    source = "microsoft/sarathi-serve ceaa066, osdi24 artifact figure 2"
    conditions = Conditions(device="a100-sxm-80gb", model="yi-34b", dtype="fp16", tp=2, source=source)
    return _profile(rows, conditions, kv_known=False)


def llama_2_70b(gpu: str, hardware: str, tp: int) -> Callable[[Path], Profile]:
    """Return the reader of Llama-2-70B's whole prompt and token steps on `tp` GPUs (2023 software)."""

    def read(data: Path) -> Profile:
        runs: dict[tuple[int, ...], list[tuple[float, float]]] = defaultdict(list)
        for r in _csv(data / "splitwise_sim/perf_model.csv"):
            if (r["model"], r["hardware"], int(r["tensor_parallel"])) == ("llama2-70b", hardware, tp):
                key = tuple(int(r[k]) for k in ("batch_size", "prompt_size", "token_size"))
                runs[key].append((1e-3 * float(r["prompt_time"]), 1e-3 * float(r["token_time"])))
        rows: list[tuple[float, ...]] = []
        for (batch, prompt, output), times in sorted(runs.items()):
            if (tp, batch) == (2, 64):
                continue  # out of memory: its prompts are recorded as taking a tenth of what arithmetic needs
            pairs, context = batch * prompt * (prompt + 1) / 2, prompt + output / 2
            n = batch * prompt
            rows.append((n, pairs, 0, batch, median(t for t, _ in times), n))
            rows.append((batch, 0, batch * context, batch, median(t for _, t in times), 0))
        source = "Mutinifni/splitwise-sim 8f99e7d, perf_model.csv (2023 software)"
        return _profile(rows, Conditions(device=gpu, model="llama-2-70b", dtype="fp16", tp=tp, source=source))

    return read


def qwen3_8b(gpu: str, system: str, version: str) -> Callable[[Path], Profile]:
    """Return the reader of Qwen3-8B put together from aiconfigurator's GeMM and attention kernels."""

    def read(data: Path) -> Profile:
        import pyarrow.parquet as pq

        def table(kind: str, name: str) -> Rows:
            folder = data / "aiconfigurator/data" / system / kind / "vllm" / version
            rows: Rows = pq.read_table(folder / f"{name}_perf.parquet").to_pylist()
            return rows

        model, device = load_model("qwen3-8b"), load_gpu(gpu)
        return aiconfigurator_profile(
            table("gemm", "gemm"),
            table("attention", "context_attention"),
            table("attention", "generation_attention"),
            model,
            gpu=device,
            most_tokens=int(kv_capacity_tokens(device, model)),
            conditions=Conditions(
                device=gpu,
                model="qwen3-8b",
                libraries={"vllm": version},
                source=f"ai-dynamo/aiconfigurator 095f58a, measured kernels of vLLM {version}",
            ),
        )

    return read


def _yi_roofline() -> IterationTime:
    return roofline(load_gpu("a100-sxm-80gb"), load_model("yi-34b"), dtype="fp16", tp=2)


def _mistral_roofline() -> IterationTime:
    return roofline(load_gpu("rtx-6000-ada"), load_model("mistral-7b-instruct-v0.2"), dtype="fp16")


# Llama-2-70B on 4 and 8 H100 is left out: its prompt times triple between 2048 and 4096 tokens, and no member of the
# family comes within 20 % of them
SOURCES: dict[str, Source | None] = {
    "rtx-6000-ada/mistral-7b": Source(slai, _mistral_roofline),
    "rtx-4090/llama-3.1-8b": Source(rtx_4090),
    "a100-sxm-80gb/qwen3-4b": Source(qwen3_4b),
    "a100-sxm-80gb/qwen3-8b": Source(qwen3_8b("a100-sxm-80gb", "a100_sxm", "0.14.0")),
    "h100-sxm/qwen3-8b": Source(qwen3_8b("h100-sxm", "h100_sxm", "0.19.0")),
    "a100-sxm-80gb/yi-34b-tp2": Source(yi_34b, _yi_roofline),
    **{
        f"{gpu}/llama-2-70b-tp{tp}": Source(llama_2_70b(gpu, hardware, tp))
        for gpu, hardware, tps in (("a100-sxm-80gb", "a100-80gb", (2, 4, 8)), ("h100-sxm", "h100-80gb", (2,)))
        for tp in tps
    },
    "a100-sxm-80gb/codellama-34b-instruct": None,  # published constants, not fitted here
}
