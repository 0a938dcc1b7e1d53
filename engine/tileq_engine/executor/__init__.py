"""Requests in motion on a real model: the simulator's decisions, a paged forward, measured iteration times.

    from tileq_engine.executor import serve
    served = serve(requests, policy("sarathi"), backend, config, clock="steady", probe=probe)
    served.run().metrics()

`Backend` is what a model must offer; `DecoderBackend` is `tileq_engine.decoder` behind it (torch), `TokenHashBackend` a
test double. Nothing here imports torch before a decoder is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Backend": "backend",
    "DecoderBackend": "decoder_backend",
    "Executor": "executor",
    "IterationLog": "log",
    "IterationRecord": "executor",
    "Probe": "clocks",
    "RunFailedError": "serving",
    "RunJournal": "journal",
    "Sampling": "sampling",
    "Served": "serving",
    "Session": "session",
    "StopSwitch": "stopping",
    "TokenHashBackend": "token_hash",
    "load_tokenizer": "text",
    "make_backend": "decoder_backend",
    "replay": "replaying",
    "serve": "serving",
    "text_requests": "text",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tileq_engine.executor' has no attribute {name!r}")
    value = getattr(import_module(f"tileq_engine.executor.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
