"""What can be chosen on the page, and the settings that a set of choices makes."""

from __future__ import annotations

__all__ = ["LENGTHS", "LIMITS_MS", "MIXES", "RATES", "ClassChoice", "settings_of", "slider", "traffic_sliders"]

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileq.exploring import Settings


@dataclass(frozen=True, slots=True)
class ClassChoice:
    """Where the sliders of one request class start.

    Parameters
    ----------
    name
        What the class is called in the figure.
    prompt_tokens, output_tokens
        Lengths, tokens.
    rate_per_s
        Requests per second at the operating point.
    """

    name: str
    prompt_tokens: int
    output_tokens: int
    rate_per_s: float


# A slider over orders of magnitude moves in steps of about a third of its value.
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
RATES = (0, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300)
LIMITS_MS = (10, 15, 20, 25, 30, 40, 50, 60, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 3000, 5000)

# Lengths are round numbers near the means of the catalogue's mixes; "agent" and "reasoning" are constructions.
MIXES: dict[str, tuple[ClassChoice, ...]] = {
    "chat + code": (ClassChoice("chat", 1024, 256, 2), ClassChoice("code", 4096, 32, 0.8)),
    "chat + documents": (ClassChoice("chat", 1024, 256, 1.5), ClassChoice("documents", 12288, 384, 0.1)),
    "code + reasoning": (ClassChoice("code", 2048, 32, 2), ClassChoice("reasoning", 512, 4096, 0.1)),
    "chat + code + documents": (
        ClassChoice("chat", 1024, 256, 1),
        ClassChoice("code", 2048, 32, 1),
        ClassChoice("documents", 12288, 384, 0.1),
    ),
}


def slider(steps: Iterable[float], value: float, label: str) -> dict[str, Any]:
    """Return the options of a slider that starts at `value`, whatever its steps are.

    Examples
    --------
    >>> slider((10, 20, 50), 30, "TBT, ms")["steps"]
    [10, 20, 30, 50]
    """
    return {"steps": sorted({*steps, value}), "value": value, "label": label, "show_value": True}


def traffic_sliders(classes: Sequence[ClassChoice]) -> dict[str, dict[str, Any]]:
    """Return the options of the sliders of each class, by the names that `settings_of` reads.

    Examples
    --------
    >>> list(traffic_sliders(MIXES["chat + code"]))
    ['prompt 0', 'output 0', 'rate 0', 'prompt 1', 'output 1', 'rate 1']
    """
    found = {}
    for i, c in enumerate(classes):
        found[f"prompt {i}"] = slider(LENGTHS, c.prompt_tokens, f"{c.name}: prompt, tokens")
        found[f"output {i}"] = slider(LENGTHS, c.output_tokens, f"{c.name}: output, tokens")
        found[f"rate {i}"] = slider(RATES, c.rate_per_s, f"{c.name}: requests/s")
    return found


def settings_of(choices: Mapping[str, Any], classes: Sequence[ClassChoice]) -> Settings:
    """Return the settings that the controls' values say.

    Parameters
    ----------
    choices
        Control name -> value: "gpu", "model", "tp", "nodes", "dtype", "memory", "engine"; "tbt_ms" and "ttft_ms"
        with the switches "tbt" and "ttft"; for class number i (from 0) "prompt i", "output i" and "rate i".
    classes
        The classes of the mix, for their names.

    Examples
    --------
    >>> said = {"gpu": "l4", "model": "qwen3-8b", "tp": "1", "dtype": "bf16", "memory": 0.9, "engine": "vllm"}
    >>> said |= {"nodes": "2", "tbt": True, "tbt_ms": 50, "ttft": False, "ttft_ms": 1000}
    >>> said |= {"prompt 0": 512, "output 0": 64, "rate 0": 1.0, "prompt 1": 64, "output 1": 512, "rate 1": 0.5}
    >>> settings = settings_of(said, MIXES["chat + code"])
    >>> settings.classes, settings.rates, settings.tbt_s, settings.ttft_s
    (('chat=512:64', 'code=64:512'), (1.0, 0.5), 0.05, None)
    """
    return Settings(
        gpu=choices["gpu"],
        model=choices["model"],
        classes=tuple(f"{c.name}={choices[f'prompt {i}']}:{choices[f'output {i}']}" for i, c in enumerate(classes)),
        rates=tuple(float(choices[f"rate {i}"]) for i in range(len(classes))),
        tbt_s=choices["tbt_ms"] / 1000 if choices["tbt"] else None,
        ttft_s=choices["ttft_ms"] / 1000 if choices["ttft"] else None,
        memory_utilisation=choices["memory"],
        tp=int(choices["tp"]),
        nodes=int(choices["nodes"]),
        dtype=choices["dtype"],
        engine=choices["engine"],
    )
