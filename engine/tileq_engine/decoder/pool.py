"""The paged KV pool: one tensor for all layers, and how many blocks of it a device can hold."""

from __future__ import annotations

__all__ = ["KvPool", "blocks_that_fit", "free_bytes"]

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from tileq_engine.decoder.config import DecoderConfig
from tileq_theory.errors import InputError, positive_int


def free_bytes(device: torch.device | str) -> int:
    """Return the memory that `device` could still give, in bytes."""
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(place)[0])
    return _host_free_bytes()


def _host_free_bytes() -> int:
    from pathlib import Path

    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import os

    try:  # where there is no /proc: half of the physical memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, AttributeError):
        return 4 * 2**30


def blocks_that_fit(
    config: DecoderConfig,
    device: torch.device | str,
    dtype: torch.dtype,
    *,
    block_tokens: int = 16,
    share: float = 0.9,
) -> int:
    """Return how many blocks fit into `share` of the memory that is free on the device now.

    One block more is kept aside: padded rows write there.
    """
    size = config.kv_bytes_per_token(torch.empty((), dtype=dtype).element_size()) * block_tokens
    return max(0, int(free_bytes(device) * share) // size - 1)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Return zeros; on the CPU in numpy's memory, which lies in huge pages (scattered blocks read 4 to 10 % faster)."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    return torch.from_numpy(np.empty(size, dtype=np.uint8)).view(dtype).view(shape).zero_()


class KvPool:
    """Keys and values of all layers in blocks: (layer, 2, block, token, KV head, dim).

    Block `blocks`, the last one, belongs to nobody: rows that only fill up a batch write there.
    """

    def __init__(
        self,
        config: DecoderConfig,
        blocks: int,
        *,
        block_tokens: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.blocks = positive_int("blocks", blocks)
        self.block_tokens = positive_int("block_tokens", block_tokens)
        shape = (config.layers, 2, self.blocks + 1, self.block_tokens, config.kv_heads, config.head_dim)
        size = config.kv_bytes_per_token(torch.empty((), dtype=dtype).element_size()) * self.block_tokens
        fit = blocks_that_fit(config, device, dtype, block_tokens=self.block_tokens, share=1.0)
        message = (
            f"{self.blocks} KV blocks of {self.block_tokens} tokens need {(self.blocks + 1) * size / 2**30:.2f} GiB on "
            f"{device}, where {fit} blocks would fit; ask for {int(0.9 * fit)} or fewer"
        )
        if self.blocks > fit:
            raise InputError(message)
        try:
            self.data: Float[torch.Tensor, "layer 2 block token kv_head dim"] = _zeros(shape, dtype, device)
        except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is one of the latter
            if "memory" not in str(error) and not isinstance(error, MemoryError):
                raise
            raise InputError(message) from None
        flat = self.data.view(config.layers, 2, -1, config.kv_heads, config.head_dim)
        self.keys = tuple(self.data[i, 0] for i in range(config.layers))
        self.values = tuple(self.data[i, 1] for i in range(config.layers))
        self.flat_keys = tuple(flat[i, 0] for i in range(config.layers))
        self.flat_values = tuple(flat[i, 1] for i in range(config.layers))

    def copy_out(
        self, blocks: Sequence[int] | Int[np.ndarray, "block"]
    ) -> Float[torch.Tensor, "layer 2 block token kv_head dim"]:
        """Return the contents of `blocks` on the host."""
        return self.data[:, :, self._index(blocks)].cpu()

    def copy_in(
        self,
        host: Float[torch.Tensor, "layer 2 block token kv_head dim"],
        blocks: Sequence[int] | Int[np.ndarray, "block"],
    ) -> None:
        """Write what `copy_out` returned into `blocks` (others than then, if need be)."""
        if host.shape[2] != len(blocks):
            raise InputError(f"{host.shape[2]} blocks were copied out and {len(blocks)} are given to copy them into")
        self.data[:, :, self._index(blocks)] = host.to(self.data.device)

    def _index(self, blocks: Sequence[int] | Int[np.ndarray, "block"]) -> torch.Tensor:
        outside = [b for b in blocks if not 0 <= b < self.blocks]
        if outside:
            raise InputError(f"block {outside[0]} is not in the pool; its blocks are 0 to {self.blocks - 1}")
        return torch.tensor(list(blocks), dtype=torch.int64, device=self.data.device)
