"""Is what the device computes right: logits against one plain forward and transformers, tokens under any schedule."""

from __future__ import annotations

__all__ = ["check_logits", "check_tokens"]

from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests

_LIMIT = {"fp32": 1e-3, "bf16": 0.35, "fp16": 0.1}
_SCHEDULES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("sarathi", {}, {"token_budget": 24}),
    ("sarathi", {}, {"token_budget": 160, "preemption": "swap"}),
    ("vllm_v1", {}, {"token_budget": 40}),
    ("slai", {}, {"token_budget": 64, "max_num_seqs": 4}),
)


def check_logits(device: str, dtype: str) -> dict[str, Any]:
    """Compare a small model's logits with those of one whole prefill, and of transformers where it is installed.

    Chunked prefill, decodes and both in one batch, over scattered blocks. In float32 the limit is 1e-3 (another order
    of sums on another device); half precision is compared with itself computed at once, and with its own rounding.
    """
    import torch

    from tileq_engine.decoder import Decoder, DecoderConfig, Member, flat_batch, random_weights, torch_setup

    torch_setup(1)
    config = DecoderConfig.small(layers=3, hidden=256, heads=8, kv_heads=2, vocab=512)
    number = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    weights = random_weights(config, seed=5, dtype=number, device=device)
    random = np.random.default_rng(0)
    texts = [random.integers(0, 512, length) for length in (70, 33, 18)]
    whole = Decoder(config, weights, blocks=64)
    first, asked = [], 0
    for text in texts:
        rows = [Member(text[: k + 1], 0, list(range(8))) for k in (len(text) - 2, len(text) - 1)]
        first.append([whole.forward(flat_batch([row], device=device))[0].float().cpu() for row in rows])
        asked += 1
    pieces = Decoder(config, weights, blocks=64)
    blocks = [list(order) for order in np.array_split(random.permutation(60), 3)]
    got: list[list[Any]] = [[], [], []]
    done = [0, 0, 0]
    for turn in range(64):
        members, who = [], []
        for i, text in enumerate(texts):
            left = len(text) - 1 - done[i]
            take = min(left, 9 + 5 * i) if left > 0 else (1 if done[i] < len(text) else 0)
            if take and (turn + i) % 3:
                members.append(Member(text[done[i] : done[i] + take], done[i], blocks[i]))
                who.append((i, take))
        if members:
            out = pieces.forward(flat_batch(members, device=device))
            for row, (i, take) in enumerate(who):
                done[i] += take
                if done[i] >= len(texts[i]) - 1:
                    got[i].append(out[row].float().cpu())
    errors = [float((a - b).abs().max()) for i in range(asked) for a, b in zip(got[i], first[i], strict=True)]
    return {
        "dtype": dtype,
        "attention": pieces.attention_name,
        "max_abs_error": max(errors),
        "limit": _LIMIT[dtype],
        "right": max(errors) <= _LIMIT[dtype],
        "transformers": _against_transformers(config, weights, texts, device) if dtype == "fp32" else None,
    }


def _against_transformers(config: Any, weights: Any, texts: Any, device: str) -> dict[str, Any]:
    import torch

    from tileq_engine.decoder import Decoder, Member, flat_batch
    from tileq_engine.executor.decoder_backend import DecoderBackend
    from tileq_engine.executor.generate_peer import transformers_model
    from tileq_theory.errors import TileqError

    decoder = Decoder(config, weights, blocks=32)
    try:
        peer = transformers_model(DecoderBackend(decoder))
    except TileqError as reason:
        return {"right": True, "skipped": str(reason)}
    worst = 0.0
    with torch.inference_mode():
        for text in texts:
            ours = decoder.forward(flat_batch([Member(text, 0, list(range(8)))], device=device))[0]
            theirs = peer(torch.from_numpy(text)[None].to(device)).logits[0, -1].float()
            worst = max(worst, float((ours - theirs).abs().max()))
    import transformers

    return {"right": worst <= _LIMIT["fp32"], "max_abs_error": worst, "version": str(transformers.__version__)}


def check_tokens(device: str) -> dict[str, Any]:
    """Serve the same requests under several policies, chunk sizes and preemptions; compare their greedy tokens.

    In float32 on one device type they are the same unless two logits are closer than the rounding of another order of
    sums; such a request is counted, and more than one in twenty is wrong.
    """
    from tileq_engine.executor import serve
    from tileq_engine.executor.decoder_backend import make_backend
    from tileq_engine.executor.replaying import differences, replay
    from tileq_engine.registry import policy

    backend = make_backend("small", device=device, dtype="fp32", kv_tokens=16 * 24)
    random = np.random.default_rng(1)
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(20, dtype=np.int64),
        prompt_tokens=random.integers(3, 60, 20),
        output_tokens=random.integers(2, 40, 20),
        tbt_limit_s=0.1,
    )
    alone = serve(asked, policy("static"), backend, EngineConfig(max_num_seqs=1), clock="busy", live=False)
    different, preemptions, replayed = 0, 0, True
    for name, params, settings in _SCHEDULES:
        config = EngineConfig(**{"max_num_seqs": 8, **settings})
        served = serve(asked, policy(name, **params), backend, config, clock="busy", live=False, check=True)
        different += sum(not np.array_equal(a, b) for a, b in zip(served.outputs, alone.outputs, strict=True))
        preemptions += int(served.raw.counters["preemptions"])
        replayed = replayed and not differences(served, replay(served))
    compared = len(asked) * len(_SCHEDULES)
    return {
        "requests_compared": compared,
        "different": different,
        "preemptions": preemptions,
        "replays_same": replayed,
        "right": different <= compared // 20 and replayed,
    }
