"""Fig. 5c: time of a batch of 512 tokens against the number of decodes in it."""

from __future__ import annotations

__all__ = ["ITEM"]

from itertools import pairwise
from typing import Any

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, shape
from paper_repro.slai.setting import CALIBRATION, PAPER

_BUDGET, _PROMPT = 512, 512
_DECODES = (8, 16, 32, 64, 128, 256)


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece: all numbers of decodes."""
    return [{"part": "batches"}]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the time of N decodes of 513 tokens of context beside a prompt of 512 - N, and its parts."""
    t, found = CALIBRATION.time, []
    for n in settings["decodes"]:
        chunk = _BUDGET - n
        pairs, reads = chunk * (chunk + 1) / 2, float(n * (_PROMPT + 1))
        whole = float(t(_BUDGET, pairs, reads, n + 1))
        parts = {"linear": float(t(_BUDGET)), "prefill attention": t.pair_s * pairs, "KV reads": t.kv_token_s * reads}
        found.append({"decodes": n, "ms": 1e3 * whole, **{name: 1e3 * value for name, value in parts.items()}})
    return {"batches": found}


def rows(data: Data) -> list[Row]:
    """The batch lengthens although its tokens stay the same."""
    batches = data.results[0]["batches"]
    times = [b["ms"] for b in batches]
    first, last = batches[0], batches[-1]
    ours = (
        f"{first['ms']:.1f} ms at {first['decodes']}, {last['ms']:.1f} ms at {last['decodes']} decodes: KV reads "
        f"{first['KV reads']:.1f} to {last['KV reads']:.1f} ms, prefill attention {first['prefill attention']:.1f} to "
        f"{last['prefill attention']:.1f} ms"
    )
    reason = (
        "the bars' values are not published; the cost of a KV read is the GPU's bandwidth from the catalogue, since "
        "the published measurements have no decodes to fit it from"
    )
    rising = all(b > a for a, b in pairwise(times))
    return [shape("batch of 512 tokens, 8 to 256 decodes", "lengthens", rising, ours, reason=reason)]


def plot(data: Data, plt: Any) -> Any:
    """Draw the parts of the batch time, stacked."""
    batches = data.results[0]["batches"]
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    places = range(len(batches))
    bottom = [0.0] * len(batches)
    for name, hatch in (("linear", ""), ("prefill attention", "//"), ("KV reads", "..")):
        values = [b[name] for b in batches]
        axes.bar(places, values, bottom=bottom, label=name, hatch=hatch, edgecolor="white")
        bottom = [x + y for x, y in zip(bottom, values, strict=True)]
    axes.set_xticks(list(places), [str(b["decodes"]) for b in batches])
    axes.set(xlabel="decodes in a batch of 512 tokens", ylabel="batch time, ms", ylim=(0, 1.3 * max(bottom)))
    axes.set_title("The same tokens, more KV to read")
    axes.legend(ncols=3, loc="upper left")
    axes.grid(axis="x", visible=False)
    return figure


ITEM = Item(
    name="slai-fig5c",
    paper=PAPER,
    where="Figure 5c",
    claim="At a fixed token budget a batch lengthens with the number of decodes in it.",
    simulated="the fitted iteration time of Mistral-7B on the RTX 6000 Ada; KV reads from the GPU's bandwidth.",
    smoke={"decodes": [8, 16, 32, 64, 128, 256]},
    full={"decodes": [8, 16, 32, 64, 128, 256]},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
