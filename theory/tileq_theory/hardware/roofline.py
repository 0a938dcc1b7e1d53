r"""Iteration time from datasheets: the roofline setting of the family (`theory.md` section 2).

With W bytes of weights read, F FLOPs a token in the linear layers, B bandwidth, C peak FLOP/s, all of one rank:

    w    = W / B                              weights of all layers and of lm_head, read once an iteration
    a    = b F / C                            a tile of b tokens
    beta = (element-wise bytes a token) / B + (all-reduce bytes a token) / link
    k    = (KV bytes a token) / B
    e    = 4 layers heads head_dim / (tp C16) one query-key pair of prefill attention
    s    = 2 vocab hidden / (tp C16)          lm_head runs for one position of a sequence
    c    = launch_s + 2 layers all_reduce_latency_s (the latter with tp > 1)

C is the peak of the weights' arithmetic, C16 that of 16-bit arithmetic (attention and lm_head stay there). No datasheet
tells b: 128 tokens, the tile of the common GeMM kernels, is an assumption that the provenance names; b = None gives an
affine model.
"""

from __future__ import annotations

__all__ = ["ALL_REDUCE_LATENCY_S", "DATASHEET_TILE_TOKENS", "roofline"]

from dataclasses import replace

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.hardware.bands import efficiency, error_band
from tileq_theory.hardware.dtypes import WeightFormat, kv_bytes_per_element, weight_format
from tileq_theory.hardware.gpu import Gpu
from tileq_theory.hardware.gpu_catalog import gpu_names, load_gpu
from tileq_theory.hardware.model import Model
from tileq_theory.hardware.shard import Shard
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import Provenance

DATASHEET_TILE_TOKENS = 128
ALL_REDUCE_LATENCY_S = 10e-6  # point-to-point latency of aiconfigurator's system descriptions; an assumption


def roofline(
    gpu: Gpu,
    model: Model,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    tp: int = 1,
    tile_tokens: int | None = DATASHEET_TILE_TOKENS,
    launch_s: float = 0.0,
    all_reduce_latency_s: float = ALL_REDUCE_LATENCY_S,
    expert_batch_tokens: float | None = None,
    corrected: bool = False,
) -> IterationTime:
    """Return the iteration time that the datasheet of `gpu` promises for `model` on `tp` such GPUs.

    Parameters
    ----------
    gpu, model
        Catalogue rows, or the caller's own.
    dtype
        Weights and their arithmetic: bf16, fp16, fp8, int8, w8a16, w4a16.
    kv_dtype
        KV cache: bf16, fp16, fp8, int8; None: 16 bits, as engines do by default whatever the weights.
    tp
        Tensor-parallel degree; it must divide the heads, and divide or be a multiple of the KV heads.
    tile_tokens
        b, tokens of a tile; None for an affine model (a = 0, the linear layers' time goes into beta).
    launch_s
        Launch and host time of an iteration, seconds; no datasheet knows it, so 0 unless given.
    all_reduce_latency_s
        Latency of one all-reduce, seconds; counts twice a layer when tp > 1.
    expert_batch_tokens
        Of a mixture of experts: batch size whose expected number of touched experts is read in w. None: all experts,
        right for loaded batches and too slow for a few tokens.

    corrected
        False: what the datasheet says, which is optimistic; the error band tells by how much. True: each part
        multiplied by the median of measured / datasheet time on this GPU (pooled where none was measured), which lies
        in the middle of what was measured on one GPU; several GPUs were slower still, as their band says.

    Returns
    -------
    IterationTime
        With its provenance, and the band of measured / modelled time relative to this very model.

    Raises
    ------
    InputError
        Unknown dtype, arithmetic that the GPU lacks, a degree that does not divide the heads, a link that is not known.

    Examples
    --------
    >>> from tileq_theory.hardware import load_gpu, load_model
    >>> t = roofline(load_gpu("h100-sxm"), load_model("llama-3.1-8b"))
    >>> round(1e3 * t.weight_floor_s, 3)
    4.481
    """
    shard = Shard(model, tp)
    peak, peak_16bit = gpu.peak(dtype), gpu.peak_16bit()
    bandwidth = gpu.bandwidth_bytes_per_s
    experts = (
        None
        if expert_batch_tokens is None
        else model.touched_experts(positive("expert_batch_tokens", expert_batch_tokens))
    )
    linear_s = shard.linear_flops_per_token() / peak
    token_s = shard.elementwise_bytes_per_token() / bandwidth
    launch = nonnegative("launch_s", launch_s)
    if shard.tp > 1:
        token_s += shard.all_reduce_bytes_per_token() / _link(gpu, shard.tp)
        launch += 2 * model.layers * nonnegative("all_reduce_latency_s", all_reduce_latency_s)
    tile = None if tile_tokens is None else positive_int("tile_tokens", tile_tokens)
    promised = IterationTime(
        launch_s=launch,
        weight_floor_s=shard.streamed_weight_bytes(dtype, experts) / bandwidth,
        tile_s=0.0 if tile is None else tile * linear_s,
        tile_tokens=1 if tile is None else tile,
        token_s=token_s + (linear_s if tile is None else 0.0),
        pair_s=model.attention_flops_per_pair / shard.tp / peak_16bit,
        kv_token_s=shard.kv_bytes_per_token(kv_dtype) / bandwidth,
        sequence_s=model.lm_head_flops_per_sequence / shard.tp / peak_16bit,
        provenance=_provenance(gpu, model, dtype, kv_dtype, shard.tp, tile, expert_batch_tokens),
    )
    return _judged(promised, gpu, weight_format(dtype), shard.tp, affine=tile is None, corrected=corrected)


def _judged(
    t: IterationTime, gpu: Gpu, dtype: WeightFormat, tp: int, *, affine: bool, corrected: bool
) -> IterationTime:
    """Return the model with its error band, corrected if asked."""
    # the measurements speak for the catalogue's facts only, not for a caller's GPU of the same name
    listed = gpu.name in gpu_names() and load_gpu(gpu.name) == gpu
    name = gpu.name if listed else f"{gpu.name} (not of the catalogue)"
    band = error_band(name, tp, affine=affine, corrected=corrected)
    if dtype.name not in ("bf16", "fp16"):
        band = replace(band, basis=f"none measured for {dtype.name}, so that of 16 bits: {band.basis}")
    if not corrected:
        return t.with_(error_band=band)
    factors = efficiency(name)
    note = (
        f"corrected by measured / datasheet time: weights {factors.floor:g}, arithmetic {factors.compute:g}, decode "
        f"attention {factors.decode_attention:g}, prefill attention {factors.prefill_attention:g} ({factors.basis})"
    )
    p = t.provenance
    return factors.apply(t).with_(error_band=band, provenance=Provenance("fitted", p.source, (note, *p.notes)))


def _link(gpu: Gpu, tp: int) -> float:
    if gpu.link_bytes_per_s is None:
        raise InputError(
            f"tp is {tp} but GPU {gpu.name} has no link bandwidth; give link_gb_s in a GPU file or use tp 1"
        )
    return gpu.link_bytes_per_s


def _provenance(
    gpu: Gpu, model: Model, dtype: str, kv_dtype: str | None, tp: int, tile: int | None, expert_batch: float | None
) -> Provenance:
    kv_bits = int(8 * kv_bytes_per_element(kv_dtype))
    notes = [
        f"datasheet roofline: {weight_format(dtype).name} weights, {kv_bits}-bit KV cache, tensor parallel {tp}",
        "no tile: the linear layers are affine in the tokens"
        if tile is None
        else f"tile of {tile} tokens assumed: no datasheet tells it, calibrate to find it",
    ]
    if model.moe_layers:
        read = "all experts" if expert_batch is None else f"the experts that {expert_batch:g} tokens touch"
        notes.append(f"mixture of experts: the floor reads {read}; a token computes {model.experts_per_token}")
    if model.sliding_layers:
        notes.append(
            f"{model.sliding_layers} of {model.layers} layers attend to {model.sliding_window_tokens} tokens only; "
            "counted as attending to all, so long contexts cost less than modelled"
        )
    if tp > 1:
        notes.append("all-reduce: ring over the link, latency assumed")
    notes += [f"GPU: {note}" for note in gpu.provenance.notes]
    return Provenance("datasheet", f"{gpu.provenance.source}; {model.provenance.source}", tuple(notes))
