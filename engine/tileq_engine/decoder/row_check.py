"""Do the bits of a row of a matrix product depend on how many other rows there are? Ask this machine."""

from __future__ import annotations

__all__ = ["row_invariant"]

import torch
from torch.nn.functional import linear

from tileq_engine.decoder.weights import Weights

_ROWS = (4, 8, 12, 20, 32, 36, 64, 100, 128, 256, 300)


def row_invariant(weights: Weights, multiple: int = 4) -> bool:
    """Return whether products with the model's own matrices give a row the same bits at every number of rows tried.

    Tried are multiples of `multiple` up to 300 rows, against products of 64. A "no" on some machine means: greedy
    tokens can differ between schedules where two logits are within rounding of each other.
    """
    layer = weights.layers[0]
    stream = torch.Generator(device=weights.device).manual_seed(1)
    with torch.inference_mode():
        for matrix in (layer.qkv, layer.output, layer.gate_up, layer.down, weights.head):
            x = torch.empty((320, matrix.shape[1]), dtype=weights.dtype, device=weights.device)
            x.normal_(generator=stream)
            whole = torch.cat([linear(part, matrix) for part in x.split(64)])
            if any(
                not torch.equal(linear(x[:n], matrix), whole[:n]) for n in _ROWS if n % multiple == 0 and n <= len(x)
            ):
                return False
    return True
