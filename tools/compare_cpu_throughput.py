"""The executor, vLLM's CPU build and `transformers` generate on the same small model and requests, round by round.

    python tools/compare_cpu_throughput.py [--vllm-python PYTHON] [--rounds 5] [--out FILE]

All three load one folder (config.json, model.safetensors), get the same token ids and output lengths, all at once, and
run greedily in float32 on one thread. Each has a process of its own (vLLM's in its own environment, made by
tools/vllm_environment.sh or any other way; left out without --vllm-python); they take turns, one round each, so that a
drift of the machine meets all. A round's figures are the requested output tokens over its real and over its CPU
seconds; reported are medians, and the median of the rounds' ratios. The tokens of all three are compared.

vLLM runs in one process with its default KV blocks, without prefix caching, at the executor's token budget and number
of sequences; the executor under the policy vllm_v1, so that both form batches by the same rules. transformers takes
`--batch` requests at a time, in order, as a static batch does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

WORKLOADS = {
    "short: 256 requests, prompts 16 to 64, outputs 8 to 40": (256, (16, 64), (8, 40)),
    "longer: 96 requests, prompts 32 to 256, outputs 16 to 128": (96, (32, 256), (16, 128)),
    "equal: 64 requests, prompts 128, outputs 64": (64, (128, 128), (64, 64)),
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def write_model(folder: Path, seed: int) -> int:
    """Write a Llama of four layers of 256 with random weights; return its vocabulary."""
    from safetensors.torch import save_file

    from tileq_engine.decoder import DecoderConfig, random_weights
    from tileq_engine.decoder.weights import parts

    c = DecoderConfig.small(max_positions=4096)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_positions,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    tensors = {p.name: p.tensor.contiguous().clone() for p in parts(c, random_weights(c, seed))}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return c.vocab_size


def write_requests(folder: Path, vocabulary: int, seed: int) -> dict[str, int]:
    """Write every workload's prompts and output lengths; return their output tokens."""
    random, asked = np.random.default_rng(seed), {}
    for name, (count, prompt, output) in WORKLOADS.items():
        lengths = random.integers(prompt[0], prompt[1] + 1, count)
        outputs = random.integers(output[0], output[1] + 1, count)
        prompts = [random.integers(3, vocabulary, int(n)).tolist() for n in lengths]
        asked[name] = {"prompts": prompts, "outputs": outputs.tolist()}
    (folder / "requests.json").write_text(json.dumps(asked), encoding="utf-8")
    return {name: sum(one["outputs"]) for name, one in asked.items()}


class Peer:
    """An engine in a process of its own that answers one line with one line."""

    def __init__(self, python: str, name: str, folder: Path, arguments: argparse.Namespace) -> None:
        worker = Path(__file__).with_name("throughput_worker.py")
        command = [python, str(worker), name, str(folder)]
        for option in ("budget", "sequences", "batch"):
            command += [f"--{option}", str(getattr(arguments, option))]
        environment = {**os.environ, **ONE_THREAD}
        if name == "vllm":  # nothing of this project is imported there
            environment.pop("PYTHONPATH", None)
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.version: str = self._answer()["version"]

    def run(self, workload: str) -> dict[str, Any]:
        """Serve one workload; return its real and CPU seconds and tokens."""
        if self._process.stdin is None:
            raise RuntimeError(f"{self.name} has no input")
        self._process.stdin.write(workload + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError(f"{self.name} has no output")
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print beside it
                found: dict[str, Any] = json.loads(line)
                return found
        raise SystemExit(f"{self.name} ended without an answer; its messages are above")

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)


def middle(values: list[float]) -> float:
    """Return the median."""
    return float(np.median(values))


def compared(peers: list[Peer], outputs: dict[str, int], rounds: int) -> dict[str, Any]:
    """Run the rounds (one more first, not counted) and return the figures of every workload."""
    document: dict[str, Any] = {}
    for workload, tokens in outputs.items():
        seen: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
        for turn in range(rounds + 1):
            for peer in peers:
                answer = peer.run(workload)
                if turn:
                    seen[peer.name].append(answer)
        ours, first = seen["executor"], seen["executor"][0]["tokens"]
        document[workload] = {"output_tokens": tokens, "engines": {}}
        for name, found in seen.items():
            document[workload]["engines"][name] = {
                "tokens_per_s": middle([tokens / one["real_s"] for one in found]),
                "tokens_per_cpu_s": middle([tokens / one["cpu_s"] for one in found]),
                "executor_over_it": middle([b["real_s"] / a["real_s"] for a, b in zip(ours, found, strict=True)]),
                "executor_over_it_cpu": middle([b["cpu_s"] / a["cpu_s"] for a, b in zip(ours, found, strict=True)]),
                "same_texts": float(np.mean([a == b for a, b in zip(first, found[0]["tokens"], strict=True)])),
            }
    return document


def table(document: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| requests | engine | output tokens/s | per CPU second | executor over it | by CPU time | texts the same |",
        "|---|---|---|---|---|---|---|",
    ]
    for workload, found in document["workloads"].items():
        for name, f in found["engines"].items():
            lines.append(
                f"| {workload} | {document['versions'][name]} | {f['tokens_per_s']:.0f} | {f['tokens_per_cpu_s']:.0f} "
                f"| {f['executor_over_it']:.2f} | {f['executor_over_it_cpu']:.2f} | {100 * f['same_texts']:.0f} % |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", default=None, help="Python of the environment that holds vllm-cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=512, help="tokens of an iteration")
    parser.add_argument("--sequences", type=int, default=64, help="most sequences at once")
    parser.add_argument("--batch", type=int, default=64, help="requests of a static batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="JSON of all figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tileq-throughput-") as place:
        folder = Path(place)
        outputs = write_requests(folder, write_model(folder, arguments.seed), arguments.seed)
        pythons = {"executor": sys.executable, "transformers": sys.executable}
        if arguments.vllm_python is not None:
            pythons["vllm"] = arguments.vllm_python
        peers = [Peer(python, name, folder, arguments) for name, python in pythons.items()]
        document = {
            "kind": "tileq cpu throughput",
            "versions": {peer.name: peer.version for peer in peers},
            "settings": {k: getattr(arguments, k) for k in ("rounds", "budget", "sequences", "batch", "seed")},
            "workloads": compared(peers, outputs, arguments.rounds),
        }
        for peer in peers:
            peer.close()
    sys.stdout.write(table(document) + "\n")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
