"""A decoder-only transformer as its config.json describes it."""

from __future__ import annotations

__all__ = ["Model"]

from dataclasses import dataclass, field

from tileq_theory.errors import InputError, positive_int
from tileq_theory.hardware.dtypes import ACTIVATION_BYTES, kv_bytes_per_element, weight_format
from tileq_theory.provenance import Provenance

_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "experts", "experts_per_token")
_WHOLE = ("intermediate", "moe_layers", "moe_intermediate", "shared_intermediate", "other_layer_params")


@dataclass(frozen=True, slots=True)
class Model:
    r"""Shape of a decoder-only transformer with gated MLPs; every size below follows from it by formula.

    Parameters
    ----------
    name
        Slug, such as `llama-3.1-8b`.
    layers, hidden, heads, kv_heads, head_dim, intermediate, vocab
        config.json's num_hidden_layers, hidden_size, num_attention_heads, num_key_value_heads, head_dim,
        intermediate_size, vocab_size. `intermediate` may be 0 when every layer is a mixture of experts.
    tied_embeddings
        True when lm_head is the embedding table.
    experts, experts_per_token, moe_layers, moe_intermediate, shared_intermediate
        Routed experts of a mixture layer, how many a token visits, how many layers are mixtures, the width of one
        expert, and the total width of the experts that every token visits. A dense model has 1, 1, 0, 0, 0.
    qkv_bias, o_bias, qk_norm, norms_per_layer
        Small parameters: biases of the attention projections, norms of queries and keys (head_dim each), norms of a
        layer.
    other_layer_params
        Further small parameters of a layer (sinks, biases of MLPs and routers, gates).
    sliding_window_tokens, sliding_layers
        Window of the layers that attend to a window only, and how many they are (None and 0: all attend to everything).
    context_tokens
        Longest context of the configuration (max_position_embeddings), None where not known.
    hf_id, provenance
        Name on the Hugging Face hub; where the facts came from.

    Examples
    --------
    >>> m = Model("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocab=10)
    >>> m.params_total, m.kv_bytes_per_token("bf16")
    (1352, 32.0)
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool = False
    experts: int = 1
    experts_per_token: int = 1
    moe_layers: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    norms_per_layer: int = 2
    other_layer_params: int = 0
    sliding_window_tokens: int | None = None
    sliding_layers: int = 0
    context_tokens: int | None = None
    hf_id: str = ""
    provenance: Provenance = field(default=Provenance("formula", "given by the caller"), compare=False)

    def __post_init__(self) -> None:
        for name in _COUNTS:
            object.__setattr__(self, name, positive_int(f"model {self.name}: {name}", getattr(self, name)))
        for name in _WHOLE:
            if getattr(self, name) != 0:
                object.__setattr__(self, name, positive_int(f"model {self.name}: {name}", getattr(self, name)))
        self._check_shape()

    def _check_shape(self) -> None:
        if self.heads % self.kv_heads:
            raise InputError(f"model {self.name}: {self.heads} heads are not a multiple of {self.kv_heads} kv_heads")
        if self.experts_per_token > self.experts:
            raise InputError(
                f"model {self.name}: experts_per_token is {self.experts_per_token} of only {self.experts} experts"
            )
        if self.moe_layers > self.layers or self.sliding_layers > self.layers:
            raise InputError(f"model {self.name}: moe_layers or sliding_layers exceed its {self.layers} layers")
        if self.moe_layers and not self.moe_intermediate:
            raise InputError(f"model {self.name}: moe_layers is {self.moe_layers} but moe_intermediate is 0")
        if self.moe_layers < self.layers and not self.intermediate:
            raise InputError(
                f"model {self.name}: intermediate is 0 but {self.layers - self.moe_layers} layers are dense"
            )

    # ------------------------------------------------------------------ parameters

    @property
    def q_size(self) -> int:
        """Width of the queries: heads * head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of the keys (and of the values): kv_heads * head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def attention_matrix_params(self) -> int:
        """Weights of a layer's attention projections: hidden (q + 2 kv) + q hidden."""
        return self.hidden * (self.q_size + 2 * self.kv_size) + self.q_size * self.hidden

    def layer_matrix_params(self, experts: float) -> float:
        """Return the weights of all layers' matrices when each mixture layer counts `experts` routed experts.

        layers * attention + dense layers * 3 hidden I
        + mixture layers * (3 hidden (experts I_e + I_shared) + hidden E).
        """
        dense = (self.layers - self.moe_layers) * 3 * self.hidden * self.intermediate
        width = experts * self.moe_intermediate + self.shared_intermediate
        mixture = self.moe_layers * (3 * self.hidden * width + self.hidden * self.experts)
        return self.layers * self.attention_matrix_params + dense + mixture

    @property
    def small_params(self) -> int:
        """Norms, biases and the like of all layers, and the final norm."""
        biases = self.qkv_bias * (self.q_size + 2 * self.kv_size) + self.o_bias * self.hidden
        norms = self.norms_per_layer * self.hidden + self.qk_norm * 2 * self.head_dim
        return self.layers * (biases + norms + self.other_layer_params) + self.hidden

    @property
    def embedding_params(self) -> int:
        """Weights of the embedding table (equal to those of lm_head): vocab * hidden."""
        return self.vocab * self.hidden

    def _outside_params(self) -> int:
        tables = 1 if self.tied_embeddings else 2
        return tables * self.embedding_params + self.small_params

    @property
    def params_total(self) -> int:
        """All parameters: matrices, embedding table(s), norms and biases."""
        return int(self.layer_matrix_params(self.experts)) + self._outside_params()

    @property
    def params_active(self) -> int:
        """Parameters that one token meets: the routed experts it does not visit are left out."""
        return int(self.layer_matrix_params(self.experts_per_token)) + self._outside_params()

    # ------------------------------------------------------------------ bytes

    def weight_bytes(self, dtype: str = "bf16") -> float:
        """Return the bytes of all weights: layer matrices in `dtype`; embeddings, lm_head, norms and biases in 16 bits.

        Checkpoints quantised for the engines keep those tables in 16 bits, so fp8 is more than half of bf16.
        """
        matrices = self.layer_matrix_params(self.experts) * weight_format(dtype).bytes_per_weight
        return matrices + self._outside_params() * ACTIVATION_BYTES

    def streamed_weight_bytes(self, dtype: str = "bf16", experts: float | None = None) -> float:
        """Return the bytes that an iteration reads: the layers, norms and lm_head; an embedding lookup reads rows only.

        `experts` is how many routed experts of a mixture layer the batch touches (None: all of them).
        """
        touched = self.experts if experts is None else experts
        matrices = self.layer_matrix_params(touched) * weight_format(dtype).bytes_per_weight
        return matrices + (self.small_params + self.embedding_params) * ACTIVATION_BYTES

    def kv_bytes_per_token(self, kv_dtype: str | None = None) -> float:
        """Return 2 * layers * kv_heads * head_dim * bytes: the KV cache of one token with every layer keeping it."""
        return 2 * self.layers * self.kv_size * kv_bytes_per_element(kv_dtype)

    def kv_bytes(self, context_tokens: float, kv_dtype: str | None = None) -> float:
        """Return the KV bytes of a context of that length when sliding layers keep only their window."""
        window = self.sliding_window_tokens
        kept = context_tokens if window is None else min(context_tokens, window)
        layer = 2 * self.kv_size * kv_bytes_per_element(kv_dtype)
        return layer * ((self.layers - self.sliding_layers) * context_tokens + self.sliding_layers * kept)

    # ------------------------------------------------------------------ work

    @property
    def linear_flops_per_token(self) -> float:
        """Return 2 * (weights of the layers' matrices that one token meets), without embedding and lm_head."""
        return 2.0 * self.layer_matrix_params(self.experts_per_token)

    @property
    def lm_head_flops_per_sequence(self) -> float:
        """Return 2 * vocab * hidden: lm_head runs for the one position of a sequence that is sampled."""
        return 2.0 * self.embedding_params

    @property
    def attention_flops_per_pair(self) -> float:
        """Return 4 * layers * heads * head_dim: score and weighted value of one query-key pair in every layer."""
        return 4.0 * self.layers * self.q_size

    def touched_experts(self, tokens: float) -> float:
        """Return the expected number of a layer's experts that `tokens` tokens touch, E (1 - (1 - k/E)^n).

        Tokens choose k of E experts independently and evenly; real routers are less even and touch fewer.
        """
        missed: float = (1.0 - self.experts_per_token / self.experts) ** tokens
        return self.experts * (1.0 - missed)

    def to_dict(self) -> dict[str, object]:
        """Return the shape and the sizes that follow from it as plain data."""
        shape = {f: getattr(self, f) for f in self.__slots__ if f != "provenance"}
        return {
            **shape,
            "params_total": self.params_total,
            "params_active": self.params_active,
            "kv_bytes_per_token_bf16": self.kv_bytes_per_token("bf16"),
            "provenance": self.provenance.to_dict(),
        }
