"""Fig. 5b: KV memory in use against the number of active requests."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, shape
from paper_repro.slai.setting import BLOCK_TOKENS, BLOCKS, CALIBRATION, PAPER

_ACTIVE = (8, 16, 32, 64, 108)
_PROMPT = 2048


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a number of residents, and the catalogue's own estimate of the memory."""
    return [{"active": n} for n in settings["active"]] + [{"active": 0}]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Let N prompts of 2048 tokens decode together and read the blocks in use; 0: estimate the memory."""
    if piece["active"] == 0:
        from tileq_theory.hardware import kv_capacity_tokens, load_gpu, load_model

        tokens = kv_capacity_tokens(load_gpu("rtx-6000-ada"), load_model(CALIBRATION.model))
        return {"estimate_blocks": int(tokens) // BLOCK_TOKENS}
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import simulate

    count = piece["active"]
    asked = Requests.from_arrays(
        prompt_tokens=np.full(count, _PROMPT), output_tokens=np.full(count, 2 * count), arrival_s=np.zeros(count)
    )
    config = EngineConfig(
        token_budget=_PROMPT + count,
        max_num_seqs=count,
        kv_tokens=BLOCKS * BLOCK_TOKENS,
        convention="paper",
        sample_limit=100_000,
    )
    run = simulate(asked, policy("sarathi"), CALIBRATION.time, config, mode="stepped")
    # the first moment at which all that ever run together have their prompts and a token
    used = run.samples.kv_blocks_used[run.samples.running == run.samples.running.max()]
    return {"together": int(run.samples.running.max()), "blocks": int(used[min(1, len(used) - 1)])}


def rows(data: Data) -> list[Row]:
    """Memory grows by a request's blocks; 108 fit, 128 do not; the catalogue's estimate beside the server's."""
    sized = [(n, data.one(active=n)) for n in sorted(data.settings["active"])]
    each = [d["blocks"] / d["together"] for _, d in sized]
    together = {n: d["together"] for n, d in sized}
    share = {n: 100 * d["blocks"] / BLOCKS for n, d in sized}
    estimate = data.one(active=0)["estimate_blocks"]
    grows = max(each) / min(each) - 1 < 0.07
    shown = ", ".join(f"{n}: {share[n]:.1f} %" for n in _ACTIVE if n in share)
    off = 100 * (estimate / BLOCKS - 1)
    reason = "weights, activations and the share of memory that the server takes are estimated, not measured"
    return [
        claim("memory in use against active requests", "grows in proportion", grows, shown),
        claim("108 active requests of 2048 tokens", "fit", together[108] == 108, f"{together[108]} run together"),
        claim("128 of them", "do not fit", together[128] < 128, f"{together[128]} run together"),
        shape("KV blocks of the server", f"{BLOCKS:,}", abs(off) < 10, f"{estimate:,} ({off:+.1f} %)", reason=reason),
    ]


def plot(data: Data, plt: Any) -> Any:
    """Draw the share of memory in use against active requests."""
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    sized = [(n, data.one(active=n)) for n in sorted(data.settings["active"])]
    axes.plot([d["together"] for _, d in sized], [100 * d["blocks"] / BLOCKS for _, d in sized], "o-")
    axes.axhline(100, color="#c8553d", linestyle="--", linewidth=1.2)
    axes.set(xlabel="active requests, 2048-token prompts", ylabel="KV memory in use, %", xlim=(0, None), ylim=(0, 108))
    axes.set_title(f"{BLOCKS:,} blocks of {BLOCK_TOKENS} tokens")
    return figure


ITEM = Item(
    name="slai-fig5b",
    paper=PAPER,
    where="Figure 5b",
    claim="GPU memory in use grows with the number of active requests until it is full.",
    simulated="the engine's paged memory with the server's blocks; the bars' values are not published.",
    smoke={"active": [8, 108, 128]},
    full={"active": [8, 16, 32, 48, 64, 80, 96, 108, 128]},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
