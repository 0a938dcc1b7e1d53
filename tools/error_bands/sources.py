"""Readers of the published measurements: points and, where kernels were timed apart, ratios."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

import numpy as np
from points import Bench, Point, ratios

from tileq_theory.hardware import Model, kv_capacity_tokens, load_gpu, load_model
from tileq_theory.hardware.hf_config import model_from_config

Ratios = dict[str, list[float]]
Table = Mapping[int, float]

VIDUR_FOLDERS = {"a100-sxm-80gb": "a100", "h100-sxm": "h100", "a40": "a40"}
AICONFIGURATOR_FOLDERS = {"a100-sxm-80gb": ("a100_sxm", "0.14.0"), "h100-sxm": ("h100_sxm", "0.19.0")}
SPLITWISE_NAMES = {"a100-sxm-80gb": "a100-80gb", "h100-sxm": "h100-80gb"}
_VIDUR_GEMMS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
_VIDUR_ELEMENTWISE = ("input_layernorm", "attn_rope", "post_attention_layernorm", "mlp_act", "add", "add")
_GRID = sorted({round(2 ** (i / 2)) for i in range(26)})  # token counts a factor of 1.4 apart


def at(table: Table, x: float) -> float:
    """Return the table's value at `x`, linear between neighbours."""
    keys = sorted(table)
    return float(np.interp(x, keys, [table[k] for k in keys]))


def linear_ratios(bench: Bench, measured_s: Mapping[int, float]) -> Ratios:
    """Return measured / roofline of the linear layers alone: the floor up to 64 tokens, compute from 512 on."""
    out: Ratios = defaultdict(list)
    for n, seconds in measured_s.items():
        if n <= 64 or n >= 512:
            out["floor" if n <= 64 else "compute"].append(seconds / float(bench.tiled.linear_s(n)))
    return out


def attention_ratio(out: Ratios, part: str, bench: Bench, modelled_s: float, measured_s: float) -> None:
    """Note measured / roofline of attention where it matters: where it takes a fifth of the floor or more."""
    if modelled_s >= 0.2 * bench.tiled.weight_floor_s:
        out[part].append(measured_s / modelled_s)


# ---------------------------------------------------------------- Vidur: operators of one layer, milliseconds


def vidur_layer(data: Path, gpu: str, operators: Iterable[str]) -> dict[int, float]:
    """Return tokens -> seconds of one layer's `operators` (Llama-2-7B, one GPU)."""
    file = data / "vidur/profiling/compute" / VIDUR_FOLDERS[gpu] / "meta-llama/Llama-2-7b-hf/mlp.csv"
    names = list(operators)
    with file.open(newline="") as lines:
        return {
            int(row["num_tokens"]): 1e-3 * sum(float(row[f"time_stats.{name}.median"]) for name in names)
            for row in csv.DictReader(lines)
            if row["num_tensor_parallel_workers"] == "1"
        }


def vidur(data: Path, gpu: str) -> tuple[list[Point], Ratios]:
    """Linear layers of Llama-2-7B, attention and lm_head left out of both sides."""
    full = load_model("llama-2-7b")
    bench = Bench(gpu, "Vidur operators, Llama-2-7B, linear layers only", _without_lm_head(full), "fp16")
    layer = vidur_layer(data, gpu, (*_VIDUR_GEMMS, *_VIDUR_ELEMENTWISE))
    times = {n: full.layers * at(layer, n) for n in _GRID if n <= max(layer)}
    return [bench.point(n, 0.0, 0.0, 0, t) for n, t in times.items()], linear_ratios(bench, times)


def _without_lm_head(model: Model) -> Model:
    """Return the model with a vocabulary of one token, so that lm_head costs nothing."""
    shape = {name: getattr(model, name) for name in model.__slots__}
    return Model(**{**shape, "vocab": 1})


# ---------------------------------------------------------------- aiconfigurator: kernels, milliseconds


def _parquet(data: Path, gpu: str, kind: str, name: str) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    system, version = AICONFIGURATOR_FOLDERS[gpu]
    file = data / "aiconfigurator/data" / system / kind / "vllm" / version / f"{name}_perf.parquet"
    return pq.read_table(file).to_pylist()  # type: ignore[no-any-return]


def _attention(data: Path, gpu: str, kind: str, model: Model) -> dict[tuple[int, int, int], float]:
    """Return (batch, new tokens, past tokens) -> seconds of one layer's attention for the model's heads."""
    return {
        (row["batch_size"], row["isl"], row["step"]): 1e-3 * row["latency"]  # type: ignore[misc, operator]
        for row in _parquet(data, gpu, "attention", f"{kind}_attention")
        if (row["num_heads"], row["num_key_value_heads"], row["head_dim"])
        == (model.heads, model.kv_heads, model.head_dim)
        and row["kv_cache_dtype"] == row["attn_dtype"] == "bfloat16"
        and not row.get("window_size")
    }


def aiconfigurator(data: Path, gpu: str) -> tuple[list[Point], Ratios]:
    """Iterations of Qwen3-8B put together from GeMM and attention kernels, element-wise kernels from Vidur."""
    model = load_model("qwen3-8b")
    bench = Bench(gpu, "aiconfigurator kernels (vLLM) put together to Qwen3-8B iterations", model)
    gemm: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in _parquet(data, gpu, "gemm", "gemm"):
        if row["gemm_dtype"] == "bfloat16":
            gemm[row["n"], row["k"]][row["m"]] = 1e-3 * row["latency"]  # type: ignore[index, operator]
    h, width = model.hidden, model.intermediate
    shapes = [(model.q_size + 2 * model.kv_size, h), (h, model.q_size), (width, h), (width, h), (h, width)]
    light = vidur_layer(data, gpu, _VIDUR_ELEMENTWISE)
    largest = max(gemm[h, h])

    def linear_s(n: int) -> float:
        elementwise = at(light, n) * (1.0 if n <= max(light) else n / max(light))
        return model.layers * (sum(at(gemm[shape], n) for shape in shapes) + elementwise)

    def lm_head_s(sequences: int) -> float:
        return at(gemm[65536, h], sequences) * model.vocab / 65536

    parts = linear_ratios(bench, {n: linear_s(n) for n in _GRID if n <= largest})
    room = kv_capacity_tokens(bench.gpu, model)
    points = []
    for (batch, new, past), seconds in _attention(data, gpu, "generation", model).items():
        kv_tokens = batch * (new + past)
        if kv_tokens <= room and batch <= 512:
            attention = model.layers * seconds
            attention_ratio(parts, "decode_attention", bench, bench.tiled.kv_token_s * kv_tokens, attention)
            total = linear_s(batch) + attention + lm_head_s(batch)
            points.append(bench.point(batch, 0.0, kv_tokens, batch, total))
    for (batch, new, past), seconds in _attention(data, gpu, "context", model).items():
        tokens, pairs = batch * new, batch * new * (past + (new + 1) / 2)
        if tokens <= min(largest, room):
            attention = model.layers * seconds
            attention_ratio(parts, "prefill_attention", bench, bench.tiled.pair_s * pairs, attention)
            points.append(bench.point(tokens, pairs, 0.0, batch, linear_s(tokens) + attention + lm_head_s(batch)))
    return points, parts


# ---------------------------------------------------------------- LLMServingSim: vLLM's layers, microseconds


def llmservingsim(data: Path) -> tuple[list[Point], Ratios]:
    """Iterations of Llama-3.1-8B on an RTX 4090 put together from vLLM's layers, mixed batches included.

    The publishers' simulator, built on the same files, meets a real vLLM run within 1 %, so these sums are iterations.
    """
    model = load_model("llama-3.1-8b")
    bench = Bench("rtx-4090", "LLMServingSim layers (vLLM 0.19) put together to Llama-3.1-8B iterations", model)
    folder = data / "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1"
    dense = _by_layer(folder / "dense.csv", "tokens")
    once = _by_layer(folder / "per_sequence.csv", "sequences")
    per_layer = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj", "act_fn", "rotary_emb", "layernorm", "layernorm"]

    def linear_s(n: int) -> float:
        outside = at(dense["embedding"], n) + at(dense["final_layernorm"], n)
        return model.layers * sum(at(dense[name], n) for name in per_layer) + outside

    parts = linear_ratios(bench, {n: linear_s(n) for n in _GRID if n <= max(dense["layernorm"])})
    room = kv_capacity_tokens(bench.gpu, model)
    points = []
    with (folder / "attention.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            chunk, history, decodes, context = (
                int(row[k]) for k in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
            )
            pairs, kv_tokens = chunk * (history + (chunk + 1) / 2), decodes * context
            tokens, sequences = chunk + decodes, decodes + (chunk > 0)
            if tokens == 0 or kv_tokens + chunk + history > room:
                continue
            attention = model.layers * 1e-6 * float(row["time_us"])
            if chunk == 0:
                attention_ratio(parts, "decode_attention", bench, bench.tiled.kv_token_s * kv_tokens, attention)
            if decodes == 0:
                attention_ratio(parts, "prefill_attention", bench, bench.tiled.pair_s * pairs, attention)
            ends = at(once["lm_head"], sequences) + at(once["sampler"], sequences)
            points.append(bench.point(tokens, pairs, kv_tokens, sequences, linear_s(tokens) + attention + ends))
    return points, parts


def _by_layer(file: Path, key: str) -> dict[str, dict[int, float]]:
    out: dict[str, dict[int, float]] = defaultdict(dict)
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            out[row["layer"]][int(row[key])] = 1e-6 * float(row["time_us"])
    return out


# ---------------------------------------------------------------- whole forward passes


def qwen3_4b(data: Path) -> tuple[list[Point], Ratios]:
    """Prefill and decode steps of Qwen3-4B on an A100 as an engine ran them, seconds, launches and host included."""
    shape = {
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 2560,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }
    model = model_from_config(shape, name="qwen3-4b")
    bench = Bench("a100-sxm-80gb", "llm_execution_time_predictor, Qwen3-4B whole steps", model)
    file = data / "llm_exec_time_predictor/benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json"
    points = []
    for row in json.loads(file.read_text())["results"]:
        batch, length = row["batch_size"], row["input_len"]
        pairs = batch * length * (length + 1) / 2
        points.append(bench.point(batch * length, pairs, 0.0, batch, row["prefill_latency"]))
        if "median_decode_latency" in row:
            context = length + row["output_len"] / 2  # the median step is the middle one
            points.append(bench.point(batch, 0.0, batch * context, batch, row["median_decode_latency"]))
    return points, {}


def splitwise(data: Path, gpu: str) -> tuple[list[Point], Ratios]:
    """Llama-2-70B on 2, 4 and 8 GPUs, milliseconds, medians of the repetitions.

    2023 software: its decode steps take as long on 8 GPUs as on 4, so the host, not the GPUs, sets their time.
    """
    model = load_model("llama-2-70b")
    runs: dict[tuple[int, int, int, int], list[tuple[float, float]]] = defaultdict(list)
    with (data / "splitwise_sim/perf_model.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["model"] == "llama2-70b" and row["hardware"] == SPLITWISE_NAMES[gpu]:
                names = ("tensor_parallel", "batch_size", "prompt_size", "token_size")
                tp, batch, prompt, output = (int(row[k]) for k in names)
                runs[tp, batch, prompt, output].append(
                    (1e-3 * float(row["prompt_time"]), 1e-3 * float(row["token_time"]))
                )
    points = []
    for (tp, batch, prompt, output), times in sorted(runs.items()):
        if (tp, batch) == (
            2,
            64,
        ):  # out of memory: its 64 prompts are recorded as taking a tenth of what arithmetic needs
            continue
        bench = Bench(
            gpu,
            "splitwise-sim, Llama-2-70B whole steps on 2 to 8 GPUs (2023 software, slow to launch)",
            model,
            "fp16",
            tp,
        )
        pairs, context = batch * prompt * (prompt + 1) / 2, prompt + output / 2
        points.append(bench.point(batch * prompt, pairs, 0.0, batch, median(t for t, _ in times)))
        points.append(bench.point(batch, 0.0, batch * context, batch, median(t for _, t in times)))
    return points, {}


def sarathi_prefill(data: Path) -> tuple[list[Point], Ratios]:
    """Lone prefills of Yi-34B on two A100, seconds (the decode runs do not record their contexts)."""
    bench = Bench("a100-sxm-80gb", "Sarathi-Serve figure 2, Yi-34B prefills on 2 GPUs", load_model("yi-34b"), "fp16", 2)
    points = []
    with (data / "sarathi_osdi24/figure-2/prefill.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            n = int(float(row["batch_num_prefill_tokens"]))
            points.append(bench.point(n, n * (n + 1) / 2, 0.0, 1, float(row["batch_execution_time"])))
    return points, {}


def slai(data: Path) -> tuple[list[Point], Ratios]:
    """Lone 2048-token prefills of Mistral-7B on an RTX 6000 Ada in chunks, milliseconds, whole steps.

    The time to first token is the sum of the chunks' times; the mean batch mixes one decode step into them, which gives
    that step as the difference. Chunk sizes that leave a remainder are left out.
    """
    model, prompt = load_model("mistral-7b"), 2048
    bench = Bench("rtx-6000-ada", "SLAI figure 5a, Mistral-7B chunked prefills, whole steps", model, "fp16")
    points, decodes_s = [], []
    with (data / "slai/plot1_results.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            chunk, first_token_s, batch_s = (
                int(row["chunk"]),
                1e-3 * float(row["ttft_ms"]),
                1e-3 * float(row["batch_ms"]),
            )
            if prompt % chunk == 0:
                count = prompt // chunk
                points.append(bench.point(chunk, prompt * (prompt + 1) / 2 / count, 0.0, 1, first_token_s / count))
                decodes_s.append((count + 1) * batch_s - first_token_s)
    points.append(bench.point(1, 0.0, prompt, 1, median(decodes_s)))
    parts: Ratios = defaultdict(list)
    for p, ratio in zip(points, ratios(points, affine=False), strict=True):
        if p.batch[0] <= 64 or p.batch[0] >= 512:
            parts["floor" if p.batch[0] <= 64 else "compute"].append(float(ratio))
    return points, parts


def everything(data: Path) -> tuple[list[Point], dict[str, list[Ratios]]]:
    """Return all points, and the part ratios of each GPU, one entry a source."""
    points: list[Point] = []
    measured_parts: dict[str, list[Ratios]] = defaultdict(list)
    runs = [(gpu, vidur(data, gpu)) for gpu in VIDUR_FOLDERS]
    runs += [(gpu, aiconfigurator(data, gpu)) for gpu in AICONFIGURATOR_FOLDERS]
    runs += [("rtx-4090", llmservingsim(data)), ("a100-sxm-80gb", qwen3_4b(data)), ("rtx-6000-ada", slai(data))]
    runs += [(gpu, splitwise(data, gpu)) for gpu in SPLITWISE_NAMES]
    runs.append(("a100-sxm-80gb", sarathi_prefill(data)))
    for gpu, (more, parts) in runs:
        points += more
        if parts:
            measured_parts[load_gpu(gpu).name].append(parts)
    return points, measured_parts
