"""Symbols that several closed forms share, so that one name has one meaning and one unit throughout."""

from __future__ import annotations

__all__ = [
    "ATTENTION_PAIRS",
    "BATCH_TOKENS",
    "CHUNK_TOKENS",
    "DECODE_TOKENS",
    "KV_CAPACITY",
    "KV_READ",
    "KV_TOKEN_S",
    "LAUNCH_S",
    "MEMORY_ITERATIONS",
    "NODES",
    "PAIR_S",
    "PREFILL_TOKENS",
    "RATE",
    "SEQUENCES",
    "SEQUENCE_S",
    "SLOT_ITERATIONS",
    "TILE_S",
    "TILE_TOKENS",
    "TOKEN_S",
    "WEIGHT_FLOOR_S",
]

from tileq_theory.closed_forms.base import Quantity

NODES = Quantity("nodes", "R", "number of identical nodes", "")
RATE = Quantity("rate_per_s", r"\lambda", "arrival rate", "1/s")

# iteration time
LAUNCH_S = Quantity("launch_s", "c", "launch and host time of an iteration", "s", "nonnegative")
TILE_S = Quantity("tile_s", "a", "time of one tile", "s")
TILE_TOKENS = Quantity("tile_tokens", "b", "tokens of one tile", "tokens", "count")
TOKEN_S = Quantity("token_s", r"\beta", "element-wise time of a token", "s/token", "nonnegative")
WEIGHT_FLOOR_S = Quantity("weight_floor_s", "w", "least time of the linear layers", "s", "nonnegative")
PAIR_S = Quantity("pair_s", "e", "time of a query-key pair of prefill attention", "s", "nonnegative")
KV_TOKEN_S = Quantity("kv_token_s", "k", "time of a KV token read by a decode", "s", "nonnegative")
SEQUENCE_S = Quantity("sequence_s", "s", "time of a sequence of the batch", "s", "nonnegative")
BATCH_TOKENS = Quantity("batch_tokens", "n", "tokens of the batch (token budget)", "tokens", "count")

# demand of one request
PREFILL_TOKENS = Quantity("prefill_tokens", "P", "mean prefill tokens of a request", "tokens")
DECODE_TOKENS = Quantity("decode_tokens", "D", "mean decode tokens of a request", "tokens")
KV_READ = Quantity("kv_read_tokens", "G", "mean KV tokens read over the decode steps of a request", "tokens")
ATTENTION_PAIRS = Quantity("attention_pairs", "A", "mean query-key pairs of a request's prefill", "pairs")
MEMORY_ITERATIONS = Quantity("memory_iterations", "g", "mean KV held, summed over iterations", "token iterations")
SLOT_ITERATIONS = Quantity("slot_iterations", "u", "mean iterations a request takes part in", "iterations")

# limits of a node
KV_CAPACITY = Quantity("kv_capacity_tokens", "M", "KV tokens that fit in memory", "tokens")
SEQUENCES = Quantity("max_sequences", "N", "most sequences in a batch", "")
CHUNK_TOKENS = Quantity("chunk_tokens", r"\hat s", "prefill chunk", "tokens")
