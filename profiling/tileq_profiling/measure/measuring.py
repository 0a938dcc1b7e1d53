"""Measure this machine: device figures, the GeMM staircase, then batches chosen one by one, within a budget of time."""

from __future__ import annotations

__all__ = ["SMALL_MODEL", "measure"]

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tileq_profiling.measure.bar import Bar
from tileq_profiling.measure.blocks import BlockStack
from tileq_profiling.measure.journal import Journal
from tileq_profiling.measure.session import build_session
from tileq_profiling.measure.space import Space, free_bytes, pick_layers
from tileq_profiling.measure.torch_module import (
    DTYPES,
    check_dtype,
    device_facts,
    import_torch,
    memory_told,
    pick_device,
)
from tileq_profiling.measure.work import Work
from tileq_profiling.profile import Profile, save_profile
from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.hardware import Model, load_model

# Small enough for a laptop's CPU, with every part of a Llama: grouped queries, gated MLP, untied head.
SMALL_MODEL = Model(
    "llama-small",
    layers=4,
    hidden=256,
    heads=8,
    kv_heads=4,
    head_dim=32,
    intermediate=704,
    vocab=4096,
    context_tokens=8192,
)
_CPU_CACHE_BYTES = 1 << 29


def measure(
    device: str = "cpu",
    model: Model | str | None = None,
    *,
    budget_s: float = 120.0,
    out: str | Path | None = None,
    resume: bool = True,
    progress: bool | None = None,
    dtype: str | None = None,
    threads: int = 1,
    layers: int | None = None,
    most_tokens: int | None = None,
    most_sequences: int | None = None,
    longest_context: int | None = None,
    precision: float = 0.02,
    seed: int = 0,
) -> Profile:
    """Return iteration times of `model` on this machine, measured within `budget_s` seconds.

    Parameters
    ----------
    device
        "cpu", "cuda" or "cuda:<number>".
    model
        A model, its name in the catalogue or the path of its config.json; a small Llama (`SMALL_MODEL`) when None.
    budget_s
        Seconds of the whole call.
    out
        Where the profile goes (.csv or .parquet, with its header beside it); each point goes to `<out>.points.jsonl`
        as it is measured. None: nothing is kept.
    resume
        Go on from the points of an earlier call with the same `out` and conditions; False begins anew.
    progress
        A bar on stderr; None shows it on a terminal.
    dtype
        "fp32" (the CPU's default), "bf16" (CUDA's default) or "fp16".
    threads
        Torch threads on the CPU. One by default: more of them wait for each other on a busy machine.
    layers
        Blocks to hold, when fewer than the model's; their time is scaled. None: as many as fit.
    most_tokens, most_sequences, longest_context
        Limits of the batches; None: 512, 64 and 2048 on a CPU, 4096, 256 and 8192 on CUDA.
    precision
        Half the width of the interval for a median, over it, at which a point needs no more repetitions.
    seed
        Of the random weights and tokens.

    Raises
    ------
    InputError
        torch is not installed, the device is not there, the model does not fit, no point within the budget, or `out`
        was begun under other conditions.
    """
    begun = time.monotonic()
    deadline = begun + positive("budget_s", budget_s)
    torch = import_torch()
    place = pick_device(torch, device)
    shape = SMALL_MODEL if model is None else model if isinstance(model, Model) else load_model(model)
    format_ = dtype or ("bf16" if place.type == "cuda" else "fp32")
    check_dtype(torch, place, format_)
    if out is not None and Path(out).suffix not in (".csv", ".parquet"):
        raise InputError(f"{out}: expected a name ending in .csv or .parquet")
    held = pick_layers(shape, format_, free_bytes(torch, place), layers)
    space = _space(
        shape,
        format_,
        place.type == "cuda",
        held,
        free_bytes(torch, place),
        (most_tokens, most_sequences, longest_context),
    )
    header = {
        **device_facts(torch, place),
        "model": shape.name,
        "model_layers": shape.layers,
        "layers": held,
        "dtype": format_,
        "threads": positive_int("threads", threads) if place.type == "cpu" else 1,
        "seed": int(seed),
    }
    with tempfile.TemporaryDirectory() as folder, _threads(torch, place, threads), torch.inference_mode():
        path = Path(str(out) + ".points.jsonl") if out is not None else Path(folder) / "points.jsonl"
        journal = Journal(path, header, resume=resume)
        with memory_told(torch, shape.name), Bar(budget_s, progress) as bar:
            stack = BlockStack(torch, shape, place, getattr(torch, DTYPES[format_]), space.kv_tokens, held, seed)
            work = Work(
                torch,
                place,
                stack,
                space,
                journal,
                bar,
                begun,
                deadline,
                positive("precision", precision),
                header["threads"],
            )
            work.facts()
            work.staircase()
            work.batches()
        profile = build_session(header, journal.records, path.name).profile
    if out is not None:
        save_profile(profile, out)
    return profile


@contextmanager
def _threads(torch: Any, device: Any, threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _space(
    model: Model, dtype: str, cuda: bool, layers: int, free: float, limits: tuple[int | None, int | None, int | None]
) -> Space:
    defaults = (4096, 256, 8192) if cuda else (512, 64, 2048)
    names = ("most_tokens", "most_sequences", "longest_context")
    tokens, sequences, context = (
        default if given is None else positive_int(name, given)
        for name, given, default in zip(names, limits, defaults, strict=True)
    )
    context = min(context, model.context_tokens or context)
    bytes_a_token = 2 * model.kv_size * layers * (4 if dtype == "fp32" else 2)
    room = 0.25 * free if cuda else min(_CPU_CACHE_BYTES, 0.2 * free)
    held = int(min(room / bytes_a_token, sequences * context + tokens))
    if held < max(tokens, 2):
        raise InputError(
            f"the cache has room for {held} tokens, fewer than a batch of {tokens}; give a smaller most_tokens or model"
        )
    return Space(tokens, sequences, max(1, min(context, held)), held)
