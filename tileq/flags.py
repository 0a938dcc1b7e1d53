"""From a plan to the flags of an engine, each with its reason.

One class of settings, three writers. Names are those of vLLM (V1 scheduler), SGLang (`sglang.launch_server`) and
Sarathi-Serve (`sarathi.entrypoints.openai.api_server`, whose options are the flattened fields of its configuration).
"""

from __future__ import annotations

__all__ = ["ENGINES", "EngineFlags", "EngineSettings", "engine_flags", "known_engine"]

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from tileq_theory.errors import InputError, near_matches

FlagValue = int | float | str | bool


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What a plan tells an engine, in no engine's words.

    Parameters
    ----------
    model
        Repository or folder that the engine loads.
    token_budget
        Most tokens in one iteration, decodes included.
    token_budget_reason, max_num_seqs_reason
        Why these values, one phrase each.
    max_num_seqs
        Most sequences in one iteration.
    memory_utilisation
        Share of the GPU's memory that the engine may use, activations included.
    static_share
        Share of it that weights and KV cache take (SGLang counts only these).
    tensor_parallel
        GPUs that share one copy of the model.
    dtype, kv_dtype
        Number formats of weights and of the KV cache, by `tileq_theory.hardware`'s canonical names.
    prefix_cache
        Whether the plan counts on hits of a prefix cache.
    """

    model: str
    token_budget: int
    token_budget_reason: str
    max_num_seqs: int
    max_num_seqs_reason: str
    memory_utilisation: float
    static_share: float
    tensor_parallel: int
    dtype: str
    kv_dtype: str
    prefix_cache: bool = False


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """Flags of one engine: name to value, name to reason, and the line to paste.

    Examples
    --------
    >>> settings = EngineSettings("org/model", 1024, "the tile", 256, "the slots", 0.9, 0.85, 1, "bf16", "bf16")
    >>> engine_flags("vllm", settings).flags["--max-num-batched-tokens"]
    1024
    """

    engine: str
    launcher: str
    flags: dict[str, FlagValue]
    reasons: dict[str, str]

    def words(self) -> list[str]:
        """Return the command as words, one flag with its value a word."""
        parts = [self.launcher]
        for name, value in self.flags.items():
            parts.append(name if value is True else f"{name} {shlex.quote(str(value))}")
        return parts

    def command(self) -> str:
        """Return the command on one line."""
        return " ".join(self.words())


@dataclass(slots=True)
class _Writer:
    flags: dict[str, FlagValue]
    reasons: dict[str, str]

    def put(self, name: str, value: FlagValue, reason: str) -> None:
        self.flags[name] = value
        self.reasons[name] = reason


def known_engine(engine: str) -> str:
    """Return `engine` if its flags are known, else raise `InputError` with near matches."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is not known; {near_matches('engines', engine, ENGINES)}")
    return engine


def engine_flags(engine: str, settings: EngineSettings) -> EngineFlags:
    """Return the flags that make `engine` run the plan; raise `InputError` for an engine that is not known."""
    writer = _Writer({}, {})
    launcher = ENGINES[known_engine(engine)](settings, writer)
    return EngineFlags(engine, launcher, writer.flags, writer.reasons)


# ---------------------------------------------------------------------- the engines

_TORCH = {"bf16": "bfloat16", "fp16": "float16"}
_SIXTEEN_BITS = frozenset(_TORCH)  # the cache then follows the weights, and no flag is needed


def _share(value: float) -> float:
    """Round down to the third digit: an engine must not be told more memory than there is."""
    return math.floor(value * 1000 + 1e-6) / 1000


def _vllm(s: EngineSettings, w: _Writer) -> str:
    budget, reason = s.token_budget, s.token_budget_reason
    if budget < s.max_num_seqs:
        reason = f"{reason} is {budget}, but vLLM wants at least --max-num-seqs"
        budget = s.max_num_seqs
    w.put("--max-num-batched-tokens", budget, reason)
    w.put("--max-num-seqs", s.max_num_seqs, s.max_num_seqs_reason)
    w.put("--enable-chunked-prefill", True, "mixes prefill chunks with decodes; the default of current versions")
    if s.prefix_cache:
        w.put("--enable-prefix-caching", True, "the hits that the plan counts on; the default of current versions")
    w.put("--gpu-memory-utilization", _share(s.memory_utilisation), "the share that the KV capacity was computed with")
    w.put("--tensor-parallel-size", s.tensor_parallel, "as planned for")
    _weights(s, w, "--dtype", "--quantization")
    if s.kv_dtype not in _SIXTEEN_BITS:
        w.put("--kv-cache-dtype", s.kv_dtype, "the KV format that the capacity was computed with")
    return f"vllm serve {shlex.quote(s.model)}"


def _weights(s: EngineSettings, w: _Writer, dtype_flag: str, quantisation_flag: str) -> None:
    if s.dtype in _TORCH:
        w.put(dtype_flag, _TORCH[s.dtype], "weights and activations as planned for")
    elif s.dtype == "fp8":
        w.put(quantisation_flag, "fp8", "weights as planned for")
    else:  # int8, w8a16 and w4a16 come with the checkpoint, which names its own method
        w.put(dtype_flag, "auto", f"{s.dtype} weights come with the checkpoint, which names its method")


def _sglang(s: EngineSettings, w: _Writer) -> str:
    w.put("--chunked-prefill-size", s.token_budget, s.token_budget_reason)
    w.put("--enable-mixed-chunk", True, "lets decodes ride with prefill chunks; they count against the chunk size")
    w.put("--max-running-requests", s.max_num_seqs, s.max_num_seqs_reason)
    w.put("--mem-fraction-static", _share(s.static_share), "weights and KV cache only, without the activations")
    w.put("--tp-size", s.tensor_parallel, "as planned for")
    _weights(s, w, "--dtype", "--quantization")
    if s.kv_dtype not in _SIXTEEN_BITS:
        name = "fp8_e4m3" if s.kv_dtype == "fp8" else s.kv_dtype
        w.put("--kv-cache-dtype", name, "the KV format that the capacity was computed with")
    return f"python -m sglang.launch_server --model-path {shlex.quote(s.model)}"


def _sarathi(s: EngineSettings, w: _Writer) -> str:
    w.put("--model_config_model", s.model, "as planned for")
    w.put("--sarathi_scheduler_config_chunk_size", s.token_budget, s.token_budget_reason)
    w.put("--sarathi_scheduler_config_max_num_seqs", s.max_num_seqs, s.max_num_seqs_reason)
    share = _share(s.memory_utilisation)
    w.put("--worker_config_gpu_memory_utilization", share, "the share that the KV capacity was computed with")
    w.put("--parallel_config_tensor_parallel_size", s.tensor_parallel, "as planned for")
    w.put("--parallel_config_pipeline_parallel_size", 1, "the plan has no pipeline stages (its default is 2)")
    if s.dtype in _TORCH:
        w.put("--model_config_dtype", _TORCH[s.dtype], "weights and activations as planned for")
    return "python -m sarathi.entrypoints.openai.api_server"


ENGINES: dict[str, Callable[[EngineSettings, _Writer], str]] = {
    "sarathi": _sarathi,
    "sglang": _sglang,
    "vllm": _vllm,
}
