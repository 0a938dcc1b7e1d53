"""Rotary position embeddings: frequencies, their stretching, and the rotation."""

from __future__ import annotations

__all__ = ["attention_factor", "inverse_frequencies", "rotate", "turns"]

import math

import torch
from jaxtyping import Float, Int

from tileq_engine.decoder.config import DecoderConfig, RopeScaling


def inverse_frequencies(config: DecoderConfig) -> Float[torch.Tensor, "half"]:
    """Return theta^(-2i/d), i = 0 .. d/2 - 1, stretched as the configuration says; float32 on the CPU.

    References
    ----------
    RoFormer, arXiv 2104.09864, section 3.4.2; position interpolation, arXiv 2306.15595; YaRN, arXiv 2309.00071,
    section 3.2; llama3 as in the release of Llama 3.1.
    """
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float32) / config.head_dim
    plain = 1.0 / (config.rope_theta**exponent)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    return _yarn(plain, scaling, config)


def _llama3(plain: Float[torch.Tensor, "half"], scaling: RopeScaling) -> Float[torch.Tensor, "half"]:
    turns = scaling.original_positions / (2 * math.pi / plain)  # over the length of the training
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (turns - low) / (high - low)
    between = (1 - smooth) * plain / scaling.factor + smooth * plain
    return torch.where(turns < low, plain / scaling.factor, torch.where(turns > high, plain, between))


def _yarn(
    plain: Float[torch.Tensor, "half"], scaling: RopeScaling, config: DecoderConfig
) -> Float[torch.Tensor, "half"]:
    size = config.head_dim

    def dimension(turns: float) -> float:
        """The dimension that turns this often over the length of the training."""
        return size * math.log(scaling.original_positions / (turns * 2 * math.pi)) / (2 * math.log(config.rope_theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(size // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def attention_factor(config: DecoderConfig) -> float:
    """Return the factor of cosines and sines: 1, but for YaRN (0.1 m ln s + 1, arXiv 2309.00071, eq. 22)."""
    scaling = config.rope_scaling
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    if scaling.attention_factor is not None:
        return float(scaling.attention_factor)

    def scale(m: float) -> float:
        return 1.0 if scaling.factor <= 1 else 0.1 * m * math.log(scaling.factor) + 1.0

    if scaling.mscale and scaling.mscale_all_dim:
        return scale(scaling.mscale) / scale(scaling.mscale_all_dim)
    return scale(1.0)


def turns(
    positions: Int[torch.Tensor, "token"], frequencies: Float[torch.Tensor, "half"], factor: float
) -> tuple[Float[torch.Tensor, "token 1 dim"], Float[torch.Tensor, "token 1 dim"]]:
    """Return cosines and signed sines (minus in the first half) of the positions, in float32 as models are trained."""
    angle = positions.to(torch.float32)[:, None] * frequencies
    cosine, sine = angle.cos() * factor, angle.sin() * factor
    return torch.cat((cosine, cosine), dim=-1)[:, None, :], torch.cat((-sine, sine), dim=-1)[:, None, :]


def rotate(
    x: Float[torch.Tensor, "token head dim"],
    cosine: Float[torch.Tensor, "token 1 dim"],
    sine: Float[torch.Tensor, "token 1 dim"],
) -> Float[torch.Tensor, "token head dim"]:
    """Return x cos + (halves of x swapped) sin, with the signs of `turns`."""
    return torch.addcmul(x * cosine, x.roll(x.shape[-1] // 2, dims=-1), sine)
