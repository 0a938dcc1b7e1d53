"""A real decoder behind the executor's interface: host arrays in, tokens out, one wait for the device in between."""

from __future__ import annotations

__all__ = ["DecoderBackend", "gemm_probe", "make_backend"]

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_engine.executor.backend import HostBatch, SampleRows, Step
from tileq_engine.executor.clocks import Probe
from tileq_theory.errors import InputError, positive_int

if TYPE_CHECKING:
    from tileq_theory.hardware import Model

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_SIDE = {"cpu": 144, "cuda": 1024}


class DecoderBackend:
    """`tileq_engine.decoder.Decoder` as a `Backend`.

    Parameters
    ----------
    decoder
        The model with its KV pool.
    """

    def __init__(self, decoder: Any) -> None:
        import torch

        from tileq_engine.decoder import FlatBatch, SamplingParams, check_finite, greedy, greedy_host, sample

        self.decoder = decoder
        self.blocks, self.block_tokens = int(decoder.blocks), int(decoder.block_tokens)
        self.vocab_size = int(decoder.config.vocab_size)
        self.eos_token_ids = tuple(int(t) for t in decoder.config.eos_token_ids)
        self.max_positions: int | None = int(decoder.config.max_positions)
        self.cuda = decoder.device.type == "cuda"
        self._sample, self._greedy, self._greedy_host, self._check = sample, greedy, greedy_host, check_finite
        self._params, self._flat_batch, self._torch = SamplingParams, FlatBatch, torch

    def step(self, batch: HostBatch, rows: SampleRows) -> Step:
        """Run the batch and choose a token for each wanted row; a row that is not finite raises `NonFiniteLogits`."""
        begun = time.perf_counter()
        flat = self._flat(batch)
        draw = None if rows.greedy else self._draw(batch, rows)
        built = time.perf_counter()
        logits = self.decoder.forward(flat)
        run = time.perf_counter()
        if draw is None and not self.cuda:
            tokens, bad = self._greedy_host(logits)
            launched = done = time.perf_counter()
        else:
            chosen = self._greedy(logits) if draw is None else self._sample(logits, *draw)
            launched = time.perf_counter()
            tokens = self._to_host(chosen)
            done = time.perf_counter()
            bad = int((tokens < 0).sum())
        if bad:
            self._check(self.decoder, flat, tokens.tolist(), batch.out_requests.tolist())
        if self.cuda:  # everything up to here was handed over; the device works until the tokens are there
            return Step(tokens, launched - begun, done - launched, 0.0)
        return Step(tokens, built - begun, run - built, done - run)

    def warm_up(self) -> None:
        """Run a batch once before anything is timed: kernels are chosen, compiled and loaded at their first use."""
        place = np.arange(min(4, self.block_tokens))
        whole, narrow = place.astype(np.int64), np.int32
        batch = HostBatch(
            requests=np.zeros(1, dtype=np.int64),
            token_ids=np.zeros_like(whole),
            positions=whole,
            slots=whole,
            query_start=np.array([0, place.size], dtype=narrow),
            context_tokens=np.array([place.size], dtype=narrow),
            block_table=np.zeros((1, 1), dtype=narrow),
            last_rows=np.array([place.size - 1]),
            out_members=np.zeros(1, dtype=np.int64),
            out_requests=np.zeros(1, dtype=np.int64),
        )
        nothing = np.zeros(1, dtype=np.int64)
        self.step(batch, SampleRows(np.zeros(1), np.ones(1), nothing, nothing, nothing))

    def capture(self, most_sequences: int, token_budget: int | None = None, longest_context: int | None = None) -> str:
        """Have the decoder record CUDA graphs where it can; say what was recorded.

        Decode-only batches of powers of two up to `most_sequences`, and mixed batches of whole and half budgets;
        contexts up to `longest_context` (None: the longest that there can be).
        """
        if not self.cuda or not getattr(self.decoder.attention, "graphable", False):
            return "none"
        decodes = sorted({min(1 << k, most_sequences) for k in range(most_sequences.bit_length() + 1)})
        mixed = [] if token_budget is None else [(token_budget // k, most_sequences) for k in (2, 1)]
        mixed = [shape for shape in mixed if shape[0] > most_sequences]
        shapes = self.decoder.capture(decodes=decodes, mixed=mixed, longest_context=longest_context)
        return ", ".join(f"{s.tokens} x {s.sequences}" for s in shapes)

    def _to_host(self, chosen: Any) -> np.ndarray:
        if self.cuda and not len(chosen):  # nothing to wait for, but the iteration ends when the device has done it
            self._torch.cuda.synchronize(self.decoder.device)
        found: np.ndarray = chosen.cpu().numpy()
        return found

    def _draw(self, batch: HostBatch, rows: SampleRows) -> tuple[list[Any], list[int]]:
        """Return sampling parameters and places of the tokens wanted, in their requests' own text."""
        columns = (rows.temperature, rows.top_k, rows.top_p, rows.seeds)
        picks = [
            self._params(temperature=t, top_k=k, top_p=p, seed=s)
            for t, k, p, s in zip(*(c.tolist() for c in columns), strict=True)
        ]
        return picks, batch.context_tokens[batch.out_members].tolist()

    def _flat(self, batch: HostBatch) -> Any:
        wide = self._tensors(batch.token_ids, batch.positions, batch.slots, batch.last_rows)
        narrow = self._tensors(batch.query_start, batch.context_tokens, batch.block_table)
        return self._flat_batch(*wide[:3], *narrow, wide[3], batch.query_start, batch.context_tokens)

    def _tensors(self, *arrays: np.ndarray) -> list[Any]:
        """Return arrays of one type as tensors on the device, by one copy that nobody waits for."""
        torch = self._torch
        if not self.cuda:
            return [torch.from_numpy(a) for a in arrays]
        whole = torch.from_numpy(np.concatenate([a.ravel() for a in arrays])).pin_memory()
        pieces = whole.to(self.decoder.device, non_blocking=True).split([a.size for a in arrays])
        return [p.view(a.shape) for p, a in zip(pieces, arrays, strict=True)]

    def copy_out(self, blocks: list[int]) -> Any:
        """Return the blocks' keys and values on the host."""
        return self.decoder.copy_out(blocks)

    def copy_in(self, held: Any, blocks: list[int]) -> None:
        """Put them into other blocks."""
        self.decoder.copy_in(held, blocks)

    def describe(self) -> dict[str, Any]:
        """Return model, device, kernels and versions."""
        import torch

        c = self.decoder.config
        device = torch.cuda.get_device_name(self.decoder.device) if self.cuda else _cpu_name()
        return {
            "model": f"{c.architecture}, {c.layers} layers of {c.hidden_size}, {c.heads}/{c.kv_heads} heads of "
            f"{c.head_dim}, MLP {c.intermediate_size}, vocabulary {c.vocab_size}",
            "parameters": int(c.parameters),
            "device": device,
            "cuda": self.cuda,
            "dtype": str(self.decoder.dtype).removeprefix("torch."),
            "attention": self.decoder.attention_name,
            "arithmetic": self.decoder.arithmetic,
            "graphs": len(self.decoder.graphs.shapes) if getattr(self.decoder, "graphs", None) else 0,
            "blocks": self.blocks,
            "block_tokens": self.block_tokens,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
        }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


def make_backend(
    model: str | Path | Model | Any = "small",
    *,
    device: str = "cpu",
    dtype: str | None = None,
    kv_tokens: int | None = None,
    block_tokens: int = 16,
    threads: int = 1,
    attention: str = "auto",
    seed: int = 0,
) -> DecoderBackend:
    """Return a backend with a model in it.

    Parameters
    ----------
    model
        "small"; a `DecoderConfig`; a folder with config.json (its weights where there are any, else random ones); a
        model of the catalogue by name or a `tileq_theory` `Model`, with random weights.
    device, dtype
        "cpu" or "cuda"; "fp32" (the CPU's default), "bf16" (CUDA's) or "fp16".
    kv_tokens
        Size of the cache; None: 65536 tokens on a CPU, on CUDA what fits.
    threads
        Torch threads on a CPU.

    Raises
    ------
    InputError
        torch is not installed, no such device or model, a cache that does not fit (it says how many blocks would).
    """
    try:
        import torch
    except ImportError:
        raise InputError(
            "a real model needs PyTorch 2.11 or newer, which is not installed; pip install 'tileq[torch]'"
        ) from None
    from tileq_engine.decoder import Decoder, blocks_that_fit, load_weights, random_weights, torch_setup

    _check_device(device)
    block_tokens = positive_int("block_tokens", block_tokens)
    cuda = device.startswith("cuda")
    format_ = dtype or ("bf16" if cuda else "fp32")
    if format_ not in _DTYPES:
        raise InputError(f"dtype is {dtype!r}; expected one of {', '.join(_DTYPES)}")
    torch_setup(positive_int("threads", threads))
    config, folder = _config(model)
    number = getattr(torch, _DTYPES[format_])
    if folder is not None and any(folder.glob("*.safetensors*")):
        weights = load_weights(folder, config, dtype=number, device=device)
    else:
        weights = random_weights(config, seed=seed, dtype=number, device=device)
    fits = blocks_that_fit(config, device, number, block_tokens=block_tokens)
    if fits < 1:
        raise InputError(
            f"no KV block of {block_tokens} tokens fits on {device} beside the weights; give a smaller model, another "
            "dtype or smaller blocks"
        )
    asked = min(fits, 4096) if kv_tokens is None and not cuda else fits
    blocks = asked if kv_tokens is None else max(1, positive_int("kv_tokens", kv_tokens) // block_tokens)
    decoder = Decoder(config, weights, blocks=blocks, block_tokens=block_tokens, attention=attention)
    backend = DecoderBackend(decoder)
    backend.warm_up()
    return backend


def _check_device(device: str) -> None:
    import torch

    kind, _, number = device.partition(":")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cpu" or (kind == "cuda" and gpus and (not number or (number.isdecimal() and int(number) < gpus))):
        return
    build = "a build without CUDA" if torch.version.cuda is None else f"built for CUDA {torch.version.cuda}"
    seen = f"{gpus} GPU(s), cuda:0 to cuda:{gpus - 1}" if gpus else "no GPU"
    raise InputError(
        f"device {device!r} is not there: torch {torch.__version__} ({build}) sees {seen}; expected cpu"
        + (", cuda or one of these" if gpus else "")
    )


def _config(model: Any) -> tuple[Any, Path | None]:
    from tileq_engine.decoder import DecoderConfig

    if isinstance(model, DecoderConfig):
        return model, None
    if not isinstance(model, str | Path):
        return DecoderConfig.from_model(model), None
    path = Path(model)
    if str(model) == "small":
        return DecoderConfig.small(), None
    if path.is_dir():
        return DecoderConfig.from_json(path / "config.json"), path
    if path.suffix == ".json":
        return DecoderConfig.from_json(path), None
    from tileq_theory.hardware import load_model

    return DecoderConfig.from_model(load_model(str(model))), None


def gemm_probe(backend: DecoderBackend) -> Probe:
    """Return the probe of this backend's device: a fixed matrix product in its number format."""
    import torch

    device = backend.decoder.device
    side = _SIDE[device.type]
    left = torch.ones(side, side, device=device, dtype=backend.decoder.dtype)
    right = torch.ones(side, side, device=device, dtype=backend.decoder.dtype)
    out = torch.empty(side, side, device=device, dtype=backend.decoder.dtype)

    def work() -> None:
        torch.mm(left, right, out=out)
        if backend.cuda:
            torch.cuda.synchronize(device)

    return Probe(work, time.perf_counter_ns if backend.cuda else time.thread_time_ns, between=backend.warm_up)
