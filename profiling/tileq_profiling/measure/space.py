"""What can be measured here: limits of batches, and memory for weights and cache."""

from __future__ import annotations

__all__ = ["Space", "free_bytes", "pick_layers"]

from dataclasses import dataclass
from typing import Any

from tileq_profiling.measure.batch import Batch
from tileq_theory.errors import InputError
from tileq_theory.hardware import Model

_WEIGHT_SHARE = 0.6  # of the free memory; activations and cache need the rest
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True)
class Space:
    """Batches of at most `most_tokens` tokens and `most_sequences` decodes, contexts and KV within what fits."""

    most_tokens: int
    most_sequences: int
    longest_context: int
    kv_tokens: int

    def fit(self, batch: Batch) -> Batch | None:
        """Return the batch with its contexts cut to what fits; None when even that is no batch."""
        chunk = min(batch.chunk_tokens, self.most_tokens, self.longest_context)
        decodes = min(batch.decodes, self.most_sequences, self.most_tokens - chunk)
        if chunk + decodes < 1 or decodes < 0:
            return None
        history = max(0, min(batch.history_tokens, self.longest_context - chunk)) if chunk else 0
        room = self.kv_tokens - chunk
        if decodes:
            context = max(
                1, min(batch.context_tokens, self.longest_context, (room - history) // decodes if room > history else 0)
            )
        else:
            context = 0
        history = min(history, max(0, room - decodes * context))
        fitted = Batch(chunk, history, decodes, context)
        return fitted if fitted.held_tokens <= self.kv_tokens else None


def free_bytes(torch: Any, device: Any) -> float:
    """Return the memory that is free on the device; infinite where the system does not tell."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:  # noqa: PTH123 - a device file
            facts = dict(line.split(":", 1) for line in lines)
        return float(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return float("inf")


def pick_layers(model: Model, dtype: str, free: float, asked: int | None) -> int:
    """Return how many of the model's layers to hold: those asked for, else all, else as many as fit.

    Raises
    ------
    InputError
        More layers than the model has, or not even one fits.
    """
    if asked is not None and not 1 <= asked <= model.layers:
        raise InputError(f"layers is {asked}; expected 1 to the {model.layers} of {model.name}")
    size = _BYTES[dtype]
    outside = model.vocab * model.hidden * (1 if model.tied_embeddings else 2) * size
    layer = model.layer_matrix_params(1.0) * size
    fits = int((_WEIGHT_SHARE * free - outside) // layer) if free != float("inf") else model.layers
    if fits < (asked or 1):
        raise InputError(
            f"{model.name} needs {(outside + (asked or 1) * layer) / 1e9:.3g} GB for {asked or 1} of its layers, "
            f"{free / 1e9:.3g} GB are free; choose a smaller model or fewer layers"
        )
    return asked if asked is not None else min(fits, model.layers)
