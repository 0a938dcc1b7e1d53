"""Shape of a Llama-family decoder: what config.json says and the sizes that follow. No torch here."""

from __future__ import annotations

__all__ = ["ARCHITECTURES", "DecoderConfig", "RopeScaling"]

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.hardware.model import Model

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_COUNTS = ("vocab_size", "hidden_size", "layers", "heads", "kv_heads", "head_dim", "intermediate_size", "max_positions")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the length that a model was trained for.

    Parameters
    ----------
    kind
        `linear`: all frequencies divided by `factor`. `llama3`: long waves only, with a smooth passage between
        `low_freq_factor` and `high_freq_factor`. `yarn`: a ramp between the dimensions that turn `beta_fast` and
        `beta_slow` times, and queries and keys scaled by `attention_factor`.
    factor
        Stretch, above 0.
    original_positions
        Length of the training (llama3, yarn).
    attention_factor, mscale, mscale_all_dim, truncate
        yarn only: the scale of cosines and sines if it is given; else it follows from `factor` and the two mscales;
        whether the ramp's ends are rounded to whole dimensions.
    """

    kind: str
    factor: float
    original_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ("linear", "llama3", "yarn"):
            raise InputError(f"rope scaling {self.kind!r} is not supported; supported: linear, llama3, yarn")
        positive("rope scaling factor", self.factor)
        if self.kind != "linear":
            positive_int("rope scaling: original_max_position_embeddings", self.original_positions)
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
            raise InputError(
                f"rope scaling llama3: low_freq_factor {self.low_freq_factor} and high_freq_factor "
                f"{self.high_freq_factor}; expected 0 < low < high"
            )
        if self.kind == "yarn" and not 0 < self.beta_slow < self.beta_fast:
            raise InputError(
                f"rope scaling yarn: beta_slow {self.beta_slow}, beta_fast {self.beta_fast}; expected 0 < slow < fast"
            )


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Shape of a decoder of the Llama family: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU.

    Parameters
    ----------
    vocab_size, hidden_size, layers, heads, kv_heads, head_dim, intermediate_size
        config.json's vocab_size, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
        intermediate_size.
    max_positions
        Longest context (max_position_embeddings).
    norm_eps, rope_theta, rope_scaling
        Epsilon of the norms; base of the rotary frequencies and how they are stretched.
    tie_embeddings
        Whether the output matrix is the embedding table.
    attention_bias, output_bias, mlp_bias
        Biases of the query, key and value projections; of the attention's output; of the MLP.
    qk_norm
        RMSNorm of queries and keys per head (Qwen3).
    sliding_window, sliding_layers
        A query sees itself and the `sliding_window - 1` tokens before it in the layers named; None: everything before.
    architecture, eos_token_ids
        One of `ARCHITECTURES`; the tokens that end a text.

    Examples
    --------
    >>> c = DecoderConfig.small()
    >>> c.parameters, c.kv_bytes_per_token(4)
    (3475712, 4096)
    """

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int = 131_072
    norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    tie_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    sliding_layers: tuple[int, ...] = ()
    architecture: str = "LlamaForCausalLM"
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in _COUNTS:
            object.__setattr__(self, name, positive_int(f"decoder config: {name}", getattr(self, name)))
        positive("decoder config: norm_eps", self.norm_eps)
        positive("decoder config: rope_theta", self.rope_theta)
        if self.heads % self.kv_heads:
            raise InputError(
                f"decoder config: {self.heads} heads are not a multiple of {self.kv_heads} kv_heads; "
                "grouped-query attention shares a KV head among equally many heads"
            )
        if self.head_dim % 2:
            raise InputError(f"decoder config: head_dim is {self.head_dim}; rotary embeddings need an even number")
        if self.architecture not in ARCHITECTURES:
            raise InputError(
                f"architecture {self.architecture!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
            )
        beyond = [t for t in self.eos_token_ids if not 0 <= t < self.vocab_size]
        if beyond:
            raise InputError(
                f"decoder config: eos_token_id {beyond[0]} is outside the vocabulary of {self.vocab_size}; "
                "a text would never end with it"
            )
        if self.sliding_window is not None:
            positive_int("decoder config: sliding_window", self.sliding_window)
        if any(not 0 <= i < self.layers for i in self.sliding_layers):
            raise InputError(f"decoder config: sliding_layers {self.sliding_layers} go beyond its {self.layers} layers")

    # ------------------------------------------------------------------ sizes

    @property
    def q_size(self) -> int:
        """Width of the queries: heads * head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of the keys (and of the values): kv_heads * head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention and MLP matrices, biases, norms."""
        h, q, kv, inner = self.hidden_size, self.q_size, self.kv_size, self.intermediate_size
        biases = self.attention_bias * (q + 2 * kv) + self.output_bias * h + self.mlp_bias * (2 * inner + h)
        norms = 2 * h + self.qk_norm * 2 * self.head_dim
        return h * (q + 2 * kv) + q * h + 3 * h * inner + biases + norms

    @property
    def parameters(self) -> int:
        """All parameters, a tied table counted once."""
        tables = 1 if self.tie_embeddings else 2
        return self.layers * self.layer_parameters + tables * self.vocab_size * self.hidden_size + self.hidden_size

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Return 2 * layers * kv_heads * head_dim * element_bytes."""
        return 2 * self.layers * self.kv_size * element_bytes

    def window(self, layer: int) -> int | None:
        """Return how many tokens a query of `layer` sees, itself included; None: all before it."""
        return self.sliding_window if layer in self.sliding_layers else None

    # ------------------------------------------------------------------ constructors

    @classmethod
    def small(
        cls,
        *,
        layers: int = 4,
        hidden: int = 256,
        heads: int = 4,
        kv_heads: int = 2,
        vocab: int = 1024,
        intermediate: int | None = None,
        **other: object,
    ) -> DecoderConfig:
        """Return a small Llama for experiments on a CPU; `intermediate` defaults to 8/3 hidden in whole 32s."""
        hidden = positive_int("hidden", hidden)
        inner = -(-8 * hidden // 96) * 32 if intermediate is None else intermediate
        given: dict[str, object] = {"head_dim": max(2, hidden // positive_int("heads", heads)), **other}
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise InputError(f"unknown decoder setting {unknown[0]!r}; known: {', '.join(sorted(known))}")
        shape = {"vocab_size": vocab, "hidden_size": hidden, "layers": layers, "heads": heads, "kv_heads": kv_heads}
        return cls(**{**shape, "intermediate_size": inner, **given})  # type: ignore[arg-type]

    @classmethod
    def from_model(cls, model: Model, *, max_positions: int | None = None) -> DecoderConfig:
        """Return the decoder of a catalogue row; a mixture of experts is refused.

        The row knows no rotary base and no epsilon: the defaults stand, which is right for random weights.
        """
        if model.moe_layers or model.experts > 1:
            raise InputError(f"model {model.name} is a mixture of experts; the decoder runs dense models only")
        biases = 2 * model.intermediate + model.hidden
        if model.norms_per_layer != 2 or model.other_layer_params not in (0, biases):
            raise InputError(
                f"model {model.name} has {model.norms_per_layer} norms and {model.other_layer_params} other parameters "
                f"a layer; the decoder runs {', '.join(ARCHITECTURES)}, which have 2 and none but biases"
            )
        window = model.sliding_window_tokens if model.sliding_layers else None
        if window is not None and model.sliding_layers != model.layers:
            raise InputError(
                f"model {model.name}: {model.sliding_layers} of {model.layers} layers attend to a window, and the row "
                "does not say which; give a DecoderConfig with sliding_layers"
            )
        return cls(
            vocab_size=model.vocab,
            hidden_size=model.hidden,
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            intermediate_size=model.intermediate,
            max_positions=max_positions or model.context_tokens or 131_072,
            tie_embeddings=model.tied_embeddings,
            attention_bias=model.qkv_bias,
            output_bias=model.o_bias,
            mlp_bias=model.other_layer_params == biases,
            qk_norm=model.qk_norm,
            sliding_window=window,
            sliding_layers=tuple(range(model.layers)) if window else (),
            architecture="Qwen3ForCausalLM" if model.qk_norm else "LlamaForCausalLM",
        )

    @classmethod
    def from_json(cls, path: str | Path) -> DecoderConfig:
        """Return the configuration of a Hugging Face config.json (or of the folder that holds one)."""
        from tileq_engine.decoder.config_json import read_config

        return read_config(Path(path))
