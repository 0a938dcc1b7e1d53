r"""How many KV tokens fit beside the weights (M of the capacity program).

    M = floor((utilisation memory - weights of a rank - reserve) / (KV bytes of a token on a rank))

The reserve holds what an engine needs besides weights and cache. Engines measure it by a dry run of the largest batch;
here, for a token budget n, N sequences, MLP width I met by a token, and 2 bytes an element:

    reserve = 1.05 GiB + 2 n (4 h + q / tp + 2 v + 3 I / tp) + 10 N vocab / tp

1.05 GiB: 0.45 of what the driver reports is not visible to programs (an RTX 4090 reports 24564 MiB, a program sees
24081), 0.6 for the context, libraries and graphs. Then residual stream, its copy, norm and attention output; q, k, v;
gate, up and product of one layer; logits of every sequence in 16 bits and twice in 32.
"""

from __future__ import annotations

__all__ = ["kv_bytes_on_gpu", "kv_capacity_tokens", "reserve_bytes"]

import math

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.hardware.dtypes import ACTIVATION_BYTES, weight_format_names
from tileq_theory.hardware.gpu import Gpu
from tileq_theory.hardware.model import Model
from tileq_theory.hardware.shard import Shard, valid_tp

_CONTEXT_BYTES = (0.45 + 0.6) * 2**30
_LOGIT_BYTES = 10.0  # one 16-bit and two 32-bit copies
_GIB = float(2**30)


def reserve_bytes(model: Model, *, token_budget: int = 2048, max_num_seqs: int = 256, tp: int = 1) -> float:
    """Return the bytes of a rank that neither weights nor KV cache may use (the formula above).

    Examples
    --------
    >>> from tileq_theory.hardware import load_model
    >>> round(reserve_bytes(load_model("llama-3.1-8b")) / 2**30, 2)
    1.61
    """
    shard = Shard(model, tp)
    n, sequences = positive_int("token_budget", token_budget), positive_int("max_num_seqs", max_num_seqs)
    mixture = model.experts_per_token * model.moe_intermediate + model.shared_intermediate
    width = max(model.intermediate, mixture)
    kv_width = shard.kv_heads * model.head_dim
    elements = 4 * model.hidden + model.q_size / shard.tp + 2 * kv_width + 3 * width / shard.tp
    logits = _LOGIT_BYTES * min(n, sequences) * model.vocab / shard.tp
    return _CONTEXT_BYTES + ACTIVATION_BYTES * n * elements + logits


def kv_bytes_on_gpu(model: Model, tp: int = 1, kv_dtype: str | None = None) -> float:
    """Return the KV bytes that one token holds on each of `tp` GPUs, over all layers.

    Examples
    --------
    >>> from tileq_theory.hardware import load_model
    >>> kv_bytes_on_gpu(load_model("llama-3.1-8b"), tp=2)
    65536.0
    """
    return float(Shard(model, tp).kv_bytes_per_token(kv_dtype))


def kv_capacity_tokens(
    gpu: Gpu,
    model: Model,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    tp: int = 1,
    utilisation: float = 0.9,
    activation_reserve_bytes: float | None = None,
    token_budget: int = 2048,
    max_num_seqs: int = 256,
) -> int:
    """Return the KV tokens that fit on `tp` GPUs beside the weights.

    Parameters
    ----------
    gpu, model, dtype, kv_dtype, tp
        As in `roofline`.
    utilisation
        Share of the memory that the engine may use (vLLM's gpu_memory_utilization), in (0, 1].
    activation_reserve_bytes
        Bytes of a rank kept free; None: the formula of the module for `token_budget` and `max_num_seqs`.

    Raises
    ------
    InputError
        When not one token fits; the message says how much is missing and the least tp, or the dtype, that fits.

    Examples
    --------
    >>> from tileq_theory.hardware import load_gpu, load_model
    >>> kv_capacity_tokens(load_gpu("rtx-4090"), load_model("mistral-7b"), activation_reserve_bytes=0) > 60_000
    True
    """
    share = positive("utilisation", utilisation)
    if share > 1:
        raise InputError(f"utilisation is {utilisation!r}; expected a share in (0, 1]")
    if activation_reserve_bytes is not None:
        nonnegative("activation_reserve_bytes", activation_reserve_bytes)
    given = (activation_reserve_bytes, token_budget, max_num_seqs)
    free = _free_bytes(gpu, model, dtype, tp, share, given)
    per_token = Shard(model, tp).kv_bytes_per_token(kv_dtype)
    if free < per_token:
        raise InputError(_does_not_fit(gpu, model, dtype, kv_dtype, tp, share, given))
    return math.floor(free / per_token)


def _free_bytes(
    gpu: Gpu, model: Model, dtype: str, tp: int, share: float, given: tuple[float | None, int, int]
) -> float:
    """Return what is left of one GPU for the KV cache; negative when the weights alone do not fit."""
    own_reserve, budget, sequences = given
    shard = Shard(model, tp)
    reserve = own_reserve
    if reserve is None:
        reserve = reserve_bytes(model, token_budget=budget, max_num_seqs=sequences, tp=tp)
    return share * gpu.memory_bytes - shard.weight_bytes(dtype) - reserve


def _does_not_fit(
    gpu: Gpu,
    model: Model,
    dtype: str,
    kv_dtype: str | None,
    tp: int,
    share: float,
    given: tuple[float | None, int, int],
) -> str:
    """Return the message for a model that leaves no room: what is missing, and what would fit."""

    def fits(other_dtype: str, other_tp: int) -> bool:
        needed = Shard(model, other_tp).kv_bytes_per_token(kv_dtype)
        return _free_bytes(gpu, model, other_dtype, other_tp, share, given) >= needed

    missing = Shard(model, tp).kv_bytes_per_token(kv_dtype) - _free_bytes(gpu, model, dtype, tp, share, given)
    remedies = []
    larger = [t for t in valid_tp(model) if t > tp and fits(dtype, t)]
    if larger:
        remedies.append(f"tp {larger[0]}")
    size = model.weight_bytes(dtype)
    smaller = [d for d in weight_format_names() if model.weight_bytes(d) < size and _runs(gpu, d) and fits(d, tp)]
    if smaller:
        remedies.append(f"dtype {smaller[0]}")
    if share < 1 and _free_bytes(gpu, model, dtype, tp, 1.0, given) > 0:
        remedies.append("a utilisation nearer 1")
    advice = f"use {' or '.join(remedies)}" if remedies else "use a GPU with more memory"
    return (
        f"model {model.name} ({size / _GIB:.1f} GiB of {dtype} weights) does not fit {tp} x {gpu.name}: "
        f"{missing / _GIB:.1f} GiB a GPU are missing (memory {gpu.memory_bytes / _GIB:.1f} GiB, "
        f"utilisation {share:g}); {advice}"
    )


def _runs(gpu: Gpu, dtype: str) -> bool:
    try:
        gpu.peak(dtype)
    except InputError:
        return False
    return True
