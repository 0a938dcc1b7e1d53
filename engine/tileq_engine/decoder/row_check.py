"""Do the bits of a row of a matrix product depend on how many other rows there are? Ask this machine."""

from __future__ import annotations

__all__ = ["row_invariant"]

from collections.abc import Sequence

import torch

from tileq_engine.decoder.products import Product

_MOVED = (1, 2, 3, 5, 7, 38)
_ROWS = (1, 2, 3, 4, 8, 12, 20, 32, 36, 64, 100, 128, 256, 300)


def row_invariant(products: Sequence[Product], multiple: int = 4) -> bool:
    """Return whether products with the model's own matrices give a row the same bits in every batch tried.

    Tried are multiples of `multiple` up to 300 rows, against products of 64, and rows at other places in a product: a
    BLAS may take a row of an odd width by where it lies in memory. A "no" on some machine means: greedy tokens can
    differ between schedules where two logits are within rounding of each other.
    """
    with torch.inference_mode():
        for product in products:
            matrix = product.matrix
            x = torch.empty((320, matrix.shape[1]), dtype=matrix.dtype, device=matrix.device)
            x.normal_(generator=torch.Generator(device=matrix.device).manual_seed(1))
            whole = torch.cat([product(part) for part in x.split(64)])
            if any(not torch.equal(product(x[:n]), whole[:n]) for n in _ROWS if n % multiple == 0):
                return False
            if any(not torch.equal(product(x.roll(n, 0)[:64]), whole.roll(n, 0)[:64]) for n in _MOVED):
                return False
    return True
