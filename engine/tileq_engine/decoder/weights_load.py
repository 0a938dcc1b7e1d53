"""Weights from a local Hugging Face folder: safetensors, in one file or in shards."""

from __future__ import annotations

__all__ = ["load_weights"]

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.weights import Part, Weights, allocate, parts
from tileq_theory.errors import InputError

_ONE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def load_weights(
    folder: str | Path,
    config: DecoderConfig | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Weights:
    """Return the weights of a model folder; `config` defaults to its config.json.

    Tensors are read one by one and copied into place: beside the weights themselves only the largest tensor is held.

    Raises
    ------
    InputError
        No weights, a missing shard, a missing tensor, a tensor of another shape or of a quantised type, or one that
        the configuration has no place for.
    """
    folder = Path(folder)
    config = DecoderConfig.from_json(folder) if config is None else config
    where = _files(folder)
    with _Shards(folder) as shards:
        names = shards.names(where)
        _check_surplus(config, names, folder)
        weights = allocate(config, dtype, device)
        for part in parts(config, weights):
            if part.name not in names:
                raise InputError(f"{folder}: no file holds {part.name}, which the model's config.json asks for")
            _fill(part, shards.tensor(names[part.name], part.name), names[part.name])
    return weights


def _files(folder: Path) -> Mapping[str, list[str] | None]:
    """Return the files with the tensors that the index places in each (None: whatever it holds)."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; expected one with config.json and safetensors")
    index = folder / _INDEX
    if not index.is_file():
        if (folder / _ONE).is_file():
            return {_ONE: None}
        raise InputError(f"{folder} holds neither {_ONE} nor {_INDEX}; supported: weights as safetensors")
    try:
        placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        pairs = [(str(name), str(file)) for name, file in placed.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{index} is not an index of shards; expected JSON with a weight_map") from None
    files: dict[str, list[str]] = {}
    for name, file in pairs:
        files.setdefault(file, []).append(name)
    missing = sorted(file for file in files if not (folder / file).is_file())
    if missing:
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise InputError(f"{folder}: shard {missing[0]}{others} is missing of the {len(files)} that {_INDEX} names")
    return files


class _Shards:
    """Open safetensors files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open: dict[str, Any] = {}

    def __enter__(self) -> _Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.clear()

    def file(self, name: str) -> Any:
        """Return the file `name`, opened once."""
        if name not in self.open:
            try:
                from safetensors import safe_open
            except ModuleNotFoundError:
                raise InputError(
                    "reading weights needs the package safetensors; install it with: pip install 'tileq[torch]'"
                ) from None
            try:
                self.open[name] = safe_open(self.folder / name, framework="pt", device="cpu")
            except Exception as error:  # its exception type is not exported by every version
                raise InputError(f"{self.folder / name} is not a readable safetensors file ({error})") from None
        return self.open[name]

    def names(self, files: Mapping[str, list[str] | None]) -> dict[str, str]:
        """Return the file of every tensor."""
        found: dict[str, str] = {}
        for file, listed in files.items():
            held = set(self.file(file).keys())
            absent = sorted(set(listed or ()) - held)
            if absent:
                raise InputError(f"{self.folder / file} lacks {absent[0]}, which {_INDEX} places there")
            found.update(dict.fromkeys(held if listed is None else listed, file))
        return found

    def tensor(self, file: str, name: str) -> torch.Tensor:
        """Return one tensor, on the host."""
        return self.file(file).get_tensor(name)


def _check_surplus(config: DecoderConfig, names: dict[str, str], folder: Path) -> None:
    """Refuse tensors that the configuration has no place for: leaving out a bias would be silently wrong."""
    shapes = {part.name for part in parts(config, allocate(config, torch.float32, "meta"))}
    ignored = {"lm_head.weight"} if config.tie_embeddings else set()
    surplus = sorted(n for n in set(names) - shapes - ignored if not n.endswith("rotary_emb.inv_freq"))
    if surplus:
        raise InputError(
            f"{folder}: {surplus[0]} has no place in a {config.architecture} of this config.json "
            f"({len(surplus)} such tensors); config and weights do not belong together"
        )


def _fill(part: Part, tensor: torch.Tensor, file: str) -> None:
    if tuple(tensor.shape) != tuple(part.tensor.shape):
        raise InputError(
            f"{file}: {part.name} has shape {tuple(tensor.shape)}; config.json asks for {tuple(part.tensor.shape)}"
        )
    if tensor.dtype not in _TYPES:
        raise InputError(f"{file}: {part.name} is {tensor.dtype}; supported: float32, float16, bfloat16")
    part.tensor.copy_(tensor)
