"""Products with the model's matrices: torch's `linear`, or on a CPU oneDNN's on matrices packed for it beforehand."""

from __future__ import annotations

__all__ = ["PackedProduct", "PlainProduct", "Product", "packing_fault", "products_of"]

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch.nn.functional import linear

from tileq_engine.decoder.pool import free_bytes
from tileq_engine.decoder.weights import Weights


@runtime_checkable
class Product(Protocol):
    """x -> x W^T + b of one matrix."""

    matrix: Float[torch.Tensor, "out in"]

    def __call__(self, x: Float[torch.Tensor, "row in"]) -> Float[torch.Tensor, "row out"]:
        """Return x W^T + b."""
        ...

    def added(self, x: Float[torch.Tensor, "row in"], to: Float[torch.Tensor, "row out"]) -> torch.Tensor:
        """Return to + x W^T + b."""
        ...


class PlainProduct:
    """The product as torch does it."""

    def __init__(self, matrix: Float[torch.Tensor, "out in"], bias: Float[torch.Tensor, "out"] | None) -> None:
        self.matrix, self.bias = matrix, bias

    def __call__(self, x: Float[torch.Tensor, "row in"]) -> Float[torch.Tensor, "row out"]:
        """Return x W^T + b."""
        return linear(x, self.matrix, self.bias)

    def added(self, x: Float[torch.Tensor, "row in"], to: Float[torch.Tensor, "row out"]) -> torch.Tensor:
        """Return to + x W^T + b."""
        return to + linear(x, self.matrix, self.bias)


class PackedProduct:
    """The product by oneDNN with the matrix in the order in which its kernels read it.

    A row's bits do not depend on how many others there are, from one row on; and no time goes into packing a matrix
    again at every call, which in a product of a few dozen rows is a good part of it.
    """

    def __init__(self, matrix: Float[torch.Tensor, "out in"], bias: Float[torch.Tensor, "out"] | None) -> None:
        self.matrix, self.bias = matrix, bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(matrix)
        self._times: Any = torch.ops.mkldnn._linear_pointwise.default
        self._times_added: Any = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Float[torch.Tensor, "row in"]) -> Float[torch.Tensor, "row out"]:
        """Return x W^T + b."""
        found: torch.Tensor = self._times(x, self._packed, self.bias, "none", [], "")
        return found

    def added(self, x: Float[torch.Tensor, "row in"], to: Float[torch.Tensor, "row out"]) -> torch.Tensor:
        """Return to + x W^T + b."""
        found: torch.Tensor = self._times_added(x, to, self._packed, self.bias, "add")
        return found


def products_of(
    weights: Weights, kind: type[PackedProduct] | type[PlainProduct]
) -> tuple[list[list[Product]], Product]:
    """Return the products of each layer (queries, keys and values; output; gate and up; down) and of the head."""
    layers: list[list[Product]] = [
        [
            kind(layer.qkv, layer.qkv_bias),
            kind(layer.output, layer.output_bias),
            kind(layer.gate_up, layer.gate_up_bias),
            kind(layer.down, layer.down_bias),
        ]
        for layer in weights.layers
    ]
    return layers, kind(weights.head, None)


def packing_fault(weights: Weights) -> str | None:
    """Return None if packed products are right on this machine and there is room for them, else why they are not used.

    They are compared with torch's own on the first layer's matrices; the packed matrices lie beside the others.
    """
    if weights.device.type != "cpu" or weights.dtype != torch.float32:
        return f"not offered for {weights.dtype} on {weights.device.type}"
    if not torch.backends.mkldnn.is_available():
        return "this torch is built without oneDNN"
    layer = weights.layers[0]
    matrices = (layer.qkv, layer.output, layer.gate_up, layer.down)
    size = 4 * (len(weights.layers) * sum(m.numel() for m in matrices) + weights.head.numel())
    if 2 * size > (free := free_bytes("cpu")):
        return f"the packed matrices need {size / 2**30:.2f} GiB, more than half of the {free / 2**30:.2f} GiB free"
    try:
        return next((fault for m in (*matrices, weights.head) if (fault := _difference(m)) is not None), None)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0][:160]}"


def _difference(matrix: Float[torch.Tensor, "out in"]) -> str | None:
    """Compare on a few rows; n additions of float32 differ by at most n 2^-23 of the sum of the terms' sizes."""
    with torch.inference_mode():
        x = torch.randn((5, matrix.shape[1]), generator=torch.Generator().manual_seed(7))
        expected, got = linear(x, matrix), PackedProduct(matrix, None)(x)
        allowed = matrix.shape[1] * 2**-23 * linear(x.abs(), matrix.abs())
        right = ((got - expected).abs() <= allowed) | ~torch.isfinite(expected)  # weights that are not finite: later
        return None if bool(right.all()) else f"a product differs by {float((got - expected).abs().max()):.3g}"
