"""Reading one small TOML or JSON file strictly: duplicate keys, non-finite numbers and directories are errors."""

from __future__ import annotations

__all__ = ["is_there", "looks_like_path", "read_json_object", "read_toml_or_json", "user_path"]

import json
import tomllib
import zlib
from pathlib import Path
from typing import Any, NoReturn

from tileq_theory.errors import InputError, no_such_file

_LARGEST_BYTES = 10_000_000  # a configuration is a few kB; more is the wrong file


def looks_like_path(text: str) -> bool:
    """Return whether `text` names a file or folder rather than a catalogue entry."""
    if not text.strip():
        return False
    return (
        text.lower().endswith((".json", ".toml", ".json.gz", ".toml.gz"))
        or text.startswith((".", "/", "~"))
        or is_there(user_path(text))
    )


def user_path(text: str) -> Path:
    """Return the path with a leading ~ replaced by the home folder, if there is one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of a user who does not exist
        return Path(text)


def is_there(path: Path) -> bool:
    """Return whether a file or folder of that name exists; a name that no file can have (too long) does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def read_toml_or_json(path: Path) -> dict[str, Any]:
    """Return the object in a .toml or .json file; anything else raises `InputError` naming the file."""
    if path.suffix.lower() == ".toml":
        text = _text(path)
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid TOML: {error}") from None
    return read_json_object(path)


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; a duplicate key, NaN, Infinity or another kind of value raises `InputError`."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                raise InputError(f"{path}: key {key!r} appears twice in one object; remove one of them")
            seen[key] = value
        return seen

    def constant(name: str) -> NoReturn:
        raise InputError(f"{path}: holds {name}, which JSON does not have; expected finite numbers")

    text = _text(path)
    try:
        document = json.loads(text, object_pairs_hook=once, parse_constant=constant)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: malformed, or a number of thousands of digits
        raise InputError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: holds a JSON {type(document).__name__}; expected an object")
    return document


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file, those inside where it is a gzip file (told by its content, as traces are)."""
    data = path.read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, _LARGEST_BYTES)
    except zlib.error as error:
        raise InputError(f"{path}: not a whole gzip file: {error}") from None
    if unpacker.unconsumed_tail:
        raise InputError(f"{path} unpacks to more than {_LARGEST_BYTES} bytes; expected a file of a few kB")
    if not unpacker.eof:
        raise InputError(f"{path}: not a whole gzip file: it ends too soon")
    return text


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; expected a file")
        if path.stat().st_size > _LARGEST_BYTES:
            raise InputError(f"{path} has {path.stat().st_size} bytes; expected a configuration file of a few kB")
        return _unpacked(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise no_such_file(path) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path!r} is not a path: {error}") from None
