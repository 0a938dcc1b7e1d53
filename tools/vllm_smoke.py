"""vLLM generates on this machine: a Llama of two layers, dummy weights, three requests of token ids.

Run by tools/vllm_environment.sh; by hand ``python tools/vllm_smoke.py [scheduler class]``.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def main() -> int:
    """Serve three requests; 0 if each has its eight tokens."""
    from vllm import LLM, SamplingParams

    folder = Path(tempfile.mkdtemp(prefix="tileq-vllm-"))
    (folder / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    extra = {"scheduler_cls": sys.argv[1]} if len(sys.argv) > 1 else {}
    llm = LLM(
        str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=2048,
        **extra,
    )
    prompts = [{"prompt_token_ids": [3 + (7 * i + j) % 500 for j in range(20 + 30 * i)]} for i in range(3)]
    asked = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, detokenize=False)
    tokens = [list(out.outputs[0].token_ids) for out in llm.generate(prompts, asked, use_tqdm=False)]
    sys.stdout.write(f"{tokens}\n")
    return 0 if [len(each) for each in tokens] == [8, 8, 8] else 1


if __name__ == "__main__":
    sys.exit(main())
