"""One rank's share of a model under tensor parallelism."""

from __future__ import annotations

__all__ = ["Shard", "valid_tp"]

from dataclasses import dataclass

from tileq_theory.errors import InputError, positive_int
from tileq_theory.hardware.dtypes import ACTIVATION_BYTES, kv_bytes_per_element, weight_format
from tileq_theory.hardware.model import Model


@dataclass(frozen=True, slots=True)
class Shard:
    """What one of `tp` ranks stores, reads and computes.

    Query heads, MLP widths (of every expert) and the vocabulary are divided by tp, which must divide the heads; KV
    heads are divided while there are enough of them and replicated beyond (each rank then keeps one). Norms, biases and
    routers, under 0.1 % of the weights, count as divided although ranks keep copies.

    Parameters
    ----------
    model
        The model.
    tp
        Tensor-parallel degree, at least 1.
    """

    model: Model
    tp: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "tp", positive_int("tp", self.tp))
        heads, kv_heads = self.model.heads, self.model.kv_heads
        fits = heads % self.tp == 0 and (kv_heads % self.tp == 0 or self.tp % kv_heads == 0)
        if not fits:
            raise InputError(
                f"tp is {self.tp}; expected a degree that divides the {heads} heads of {self.model.name} and divides "
                f"or is a multiple of its {kv_heads} KV heads: {', '.join(map(str, valid_tp(self.model)))}"
            )

    @property
    def kv_heads(self) -> float:
        """KV heads that a rank keeps: max(1, kv_heads / tp)."""
        return max(1.0, self.model.kv_heads / self.tp)

    def _replicated_kv_params(self) -> float:
        """Weights of the key and value projections that a rank keeps beyond its even share."""
        extra_heads = self.kv_heads - self.model.kv_heads / self.tp
        return 2 * self.model.layers * self.model.hidden * self.model.head_dim * extra_heads

    def weight_bytes(self, dtype: str) -> float:
        """Return the weight bytes that a rank stores."""
        extra = self._replicated_kv_params() * weight_format(dtype).bytes_per_weight
        return self.model.weight_bytes(dtype) / self.tp + extra

    def streamed_weight_bytes(self, dtype: str, experts: float | None = None) -> float:
        """Return the weight bytes that a rank reads in an iteration (`Model.streamed_weight_bytes`)."""
        extra = self._replicated_kv_params() * weight_format(dtype).bytes_per_weight
        return self.model.streamed_weight_bytes(dtype, experts) / self.tp + extra

    def linear_flops_per_token(self) -> float:
        """Return the FLOPs of a rank's linear layers for one token."""
        return self.model.linear_flops_per_token / self.tp + 2 * self._replicated_kv_params()

    def kv_bytes_per_token(self, kv_dtype: str | None) -> float:
        """Return the KV bytes of one token on a rank: 2 layers max(1, kv_heads/tp) head_dim bytes."""
        return 2 * self.model.layers * self.kv_heads * self.model.head_dim * kv_bytes_per_element(kv_dtype)

    def elementwise_bytes_per_token(self) -> float:
        r"""Return the bytes that a rank's element-wise kernels move for one token, each fused as engines fuse them.

        With h hidden, q = heads head_dim / tp, v = KV width of a rank, I = MLP width met by a token / tp, 2 bytes an
        element:

            layer:   4 h a norm (activation and residual, in and out) + 2 (q + v) rotary + 4 v cache write + 3 I gate
            mixture: 2 (1 + k) h more, to scatter a token to its k experts and gather it back
            outside: 2 h embedding row + 4 h final norm

        Inputs and outputs of the matrix products are not counted: the products hide them.
        """
        m = self.model
        v = self.kv_heads * m.head_dim
        layer = 4 * m.hidden * m.norms_per_layer + 2 * (m.q_size / self.tp + v) + 4 * v
        dense = (m.layers - m.moe_layers) * 3 * m.intermediate / self.tp
        width = m.experts_per_token * m.moe_intermediate + m.shared_intermediate
        mixture = m.moe_layers * (3 * width / self.tp + 2 * (1 + m.experts_per_token) * m.hidden)
        return ACTIVATION_BYTES * (m.layers * layer + dense + mixture + 6 * m.hidden)

    def all_reduce_bytes_per_token(self) -> float:
        """Return the bytes one rank sends for one token: two ring all-reduces a layer, 2 (tp - 1)/tp h bytes each."""
        ring = 2 * (self.tp - 1) / self.tp
        return 2 * self.model.layers * ring * self.model.hidden * ACTIVATION_BYTES


def valid_tp(model: Model, most: int = 64) -> list[int]:
    """Return the tensor-parallel degrees up to `most` that divide the model's heads as engines need."""
    kv_heads = model.kv_heads
    return [t for t in range(1, most + 1) if model.heads % t == 0 and (kv_heads % t == 0 or t % kv_heads == 0)]
