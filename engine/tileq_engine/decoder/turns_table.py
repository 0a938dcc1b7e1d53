"""Cosines and sines of positions, computed once for each position that is seen."""

from __future__ import annotations

__all__ = ["TurnsTable"]

import numpy as np
import torch
from jaxtyping import Float

from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.rope import attention_factor, inverse_frequencies

_AT_ONCE = 1024


class TurnsTable:
    """Rows of cosines and sines, position by position; it grows with the longest position asked for.

    Whole blocks of positions are computed, each in the same way whenever it is reached: the bits of a row do not
    depend on who asked.

    Parameters
    ----------
    config
        Frequencies and their stretching.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self._frequencies = inverse_frequencies(config)
        self._factor = attention_factor(config)
        self.cosine: Float[np.ndarray, "position half"] = np.empty((0, config.head_dim // 2), dtype=np.float32)
        self.sine: Float[np.ndarray, "position half"] = self.cosine

    def reach(self, positions: int) -> None:
        """Have rows for the positions 0 .. positions - 1 at least."""
        held = len(self.cosine)
        if positions <= held:
            return
        wanted = max(2 * held, -(-positions // _AT_ONCE) * _AT_ONCE)
        more = [self._block(start) for start in range(held, wanted, _AT_ONCE)]
        self.cosine = np.concatenate((self.cosine, *(cosine for cosine, _ in more)))
        self.sine = np.concatenate((self.sine, *(sine for _, sine in more)))

    def _block(self, start: int) -> tuple[Float[np.ndarray, "position half"], Float[np.ndarray, "position half"]]:
        angle = torch.arange(start, start + _AT_ONCE, dtype=torch.float32)[:, None] * self._frequencies
        return (angle.cos() * self._factor).numpy(), (angle.sin() * self._factor).numpy()
