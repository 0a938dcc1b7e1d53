"""Conversations as a command names them: one grammar and one table of keys for `--conversations` and `--workload`.

What is drawn (`tileq_engine.conversations`) and its law (`tileq_theory.prefix_cache`) come from the same text.
"""

from __future__ import annotations

__all__ = ["KEYS", "Talks", "parse_conversations", "read_conversations"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError, finite, near_matches

if TYPE_CHECKING:
    from tileq_engine.conversations import Conversations as Drawn
    from tileq_theory.prefix_cache import Conversations

KEYS = {
    "turns": "turns_mean",
    "system": "system_tokens",
    "user": "user_tokens",
    "answer": "answer_tokens",
    "think": "think_s",
    "prompts": "system_prompts",
    "zipf": "system_zipf",
    "block": "block_tokens",
    "answers": "keep_answers",
}  # of a text, and of what is drawn
_WHOLE = ("system", "prompts", "block")


@dataclass(frozen=True, slots=True)
class Talks:
    """Conversations twice: what draws them, and the law of what it draws (which knows of lengths the means)."""

    drawn: Drawn
    law: Conversations

    @property
    def exact(self) -> bool:
        """Whether the law says all there is to say: user and answer have one length each."""
        from tileq_theory.lengths import Fixed

        return all(isinstance(law, Fixed) for law in (self.drawn.user_tokens, self.drawn.answer_tokens))


def read_conversations(given: str | Drawn | Conversations) -> Talks:
    """Return the conversations of "turns=4:system=1000:user=100:answer=200:think=60", or of an object.

    Keys, each with a default: `turns` (mean of a session), `system`, `user`, `answer` (tokens; the last two may be laws
    as `geometric(64)`), `think` (mean seconds between two turns), `prompts` (different system prompts), `zipf` (of
    their popularity), `block` (tokens of a block), `answers` (`kept`, or `dropped` where answers do not stay in the
    cache).

    Raises
    ------
    InputError
        In one line that names the text and the key.

    Examples
    --------
    >>> read_conversations("turns=4:system=1000:user=100:answer=200:think=60").law.prompt_tokens
    2000.0
    """
    from tileq_engine.conversations import Conversations as Drawn
    from tileq_theory.prefix_cache import Conversations

    if isinstance(given, Conversations):
        return Talks(_drawn_of(given), given)
    if isinstance(given, str):
        values = _values(given)
        try:
            given = Drawn(**values)
        except InputError as error:
            raise InputError(f"conversations {given!r}: {_by_key(str(error))}") from None
    if not isinstance(given, Drawn):
        raise InputError(f"conversations are {given!r}; expected a text as turns=4:system=1000:user=100")
    return Talks(given, _law_of(given))


def parse_conversations(given: str | Conversations) -> Conversations:
    """Return the law of `read_conversations`.

    Examples
    --------
    >>> parse_conversations("turns=1:system=0:user=100").prompt_tokens
    100.0
    """
    return read_conversations(given).law


def _values(text: str) -> dict[str, Any]:
    from tileq_theory.lengths.parse import split_outside

    found: dict[str, Any] = {}
    for item in split_outside(text, ":") if text.strip() else ():
        key, sign, value = (part.strip() for part in item.partition("="))
        if key not in KEYS:
            raise InputError(f"conversations {text!r}: {key!r} is unknown; {near_matches('keys', key, KEYS)}")
        if not sign or not value:
            raise InputError(f"conversations {text!r}: {key} has no value; expected {key}=...")
        if KEYS[key] in found:
            raise InputError(f"conversations {text!r} give {key} twice; expected it once")
        found[KEYS[key]] = _value(text, key, value)
    return found


def _value(text: str, key: str, value: str) -> Any:
    from tileq_theory.lengths.parse import parse_lengths

    readers: dict[str, Callable[[str], Any]] = {"user": parse_lengths, "answer": parse_lengths, "answers": _kept}
    try:
        return readers[key](value) if key in readers else _number(key, value)
    except InputError as error:
        told = str(error) if str(error).startswith(key) else f"{key}: {error}"
        raise InputError(f"conversations {text!r}: {told}") from None
    except ValueError:
        raise InputError(f"conversations {text!r}: {key} is {value!r}; expected a number") from None


def _kept(text: str) -> bool:
    if text not in ("kept", "dropped"):
        raise InputError(f"answers is {text!r}; expected kept or dropped")
    return text == "kept"


def _number(key: str, text: str) -> int | float:
    if text.lstrip("+-").isdigit():
        return int(text)
    value = finite(key, float(text))
    if key in _WHOLE and value != int(value):
        raise InputError(f"{key} is {text}; expected a whole number")
    return int(value) if key in _WHOLE else value


def _by_key(message: str) -> str:
    """Return a message that names a field under the key that the user gave."""
    for key, field in KEYS.items():
        message = message.replace(field, key)
    return message


def _law_of(drawn: Drawn) -> Conversations:
    from tileq_theory.prefix_cache import Conversations

    lengths: Any = (drawn.user_tokens, drawn.answer_tokens)  # laws, once it is made
    user, answer = (float(law.mean()) for law in lengths)
    return Conversations(
        turns=drawn.turns_mean,
        system_tokens=drawn.system_tokens,
        user_tokens=user,
        answer_tokens=answer,
        think_s=drawn.think_s,
        system_prompts=drawn.system_prompts,
        zipf=drawn.system_zipf,
        cache_answers=drawn.keep_answers,
        block_tokens=drawn.block_tokens,
    )


def _drawn_of(law: Conversations) -> Drawn:
    """Return what draws conversations of a law, in whole tokens, and in whole KV blocks where it knows of none."""
    from tileq_engine.conversations import Conversations as Drawn

    return Drawn(
        turns_mean=law.turns,
        system_prompts=law.system_prompts,
        system_zipf=law.zipf,
        system_tokens=int(law.system_tokens),
        user_tokens=max(1, round(law.user_tokens)),
        answer_tokens=max(1, round(law.answer_tokens)),
        think_s=law.think_s,
        block_tokens=16 if law.block_tokens == 1 else law.block_tokens,
        keep_answers=law.cache_answers,
    )
