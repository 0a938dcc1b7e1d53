"""How tokens are drawn and when a request stops, per request."""

from __future__ import annotations

__all__ = ["Sampling", "SamplingTable"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.executor.backend import SampleRows
from tileq_engine.executor.histories import Histories
from tileq_theory.errors import InputError, nonnegative


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling and stop rules of one request.

    Parameters
    ----------
    temperature
        0: the most likely token.
    top_p, top_k
        Keep the most likely tokens up to this share (1: all) and this number (0: all).
    seed
        Of the request's own draws; they do not depend on who shares its batches.
    stop_token_ids
        Tokens that end the request; they are delivered.
    stop_sequences
        Runs of tokens that end it.
    ignore_eos
        Go on to the limit whatever the model's end-of-text token, for experiments with given output lengths.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop_sequences: tuple[tuple[int, ...], ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        nonnegative("temperature", self.temperature)
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p!r}; expected a share in (0, 1]")
        if self.top_k < 0:
            raise InputError(f"top_k is {self.top_k!r}; expected 0 (all tokens) or more")
        if any(not sequence for sequence in self.stop_sequences):
            raise InputError("a stop sequence is empty; expected at least one token")


FIXED_LENGTH = Sampling(ignore_eos=True)


class SamplingTable:
    """The sampling of every request by index; what is the same for many is kept once."""

    def __init__(self) -> None:
        self._rules: list[Sampling] = []
        self._eos: tuple[int, ...] = ()
        self._plain = True  # nobody samples, nobody stops early: nothing to look up

    def add(self, rule: Sampling, eos_token_ids: tuple[int, ...]) -> None:
        """Add the rule of the next request."""
        self._rules.append(rule)
        self._eos = eos_token_ids
        stops = rule.stop_token_ids or rule.stop_sequences or (eos_token_ids and not rule.ignore_eos)
        self._plain = self._plain and not rule.temperature and not stops

    def rows(self, requests: Int[np.ndarray, "out"], steps: Int[np.ndarray, "out"]) -> SampleRows:
        """Return how the next token of each of these requests is drawn."""
        if self._plain:
            zeros = np.zeros(requests.size)
            whole = np.zeros(requests.size, dtype=np.int64)
            return SampleRows(zeros, zeros + 1.0, whole, whole, steps)
        rules = [self._rules[i] for i in requests.tolist()]
        return SampleRows(
            np.array([r.temperature for r in rules], dtype=float),
            np.array([r.top_p for r in rules], dtype=float),
            np.array([r.top_k for r in rules], dtype=np.int64),
            np.array([r.seed for r in rules], dtype=np.int64),
            steps,
        )

    def stopped(
        self, requests: Int[np.ndarray, "out"], tokens: Int[np.ndarray, "out"], histories: Histories
    ) -> Bool[np.ndarray, "out"]:
        """Return whose token, already in its history, ends it by a stop rule."""
        found = np.zeros(requests.size, dtype=bool)
        if self._plain:
            return found
        for at, (request, token) in enumerate(zip(requests.tolist(), tokens.tolist(), strict=True)):
            rule = self._rules[request]
            found[at] = token in rule.stop_token_ids or (not rule.ignore_eos and token in self._eos)
            if rule.stop_sequences and not found[at]:
                told = histories.generated(request)
                found[at] = any(told[-len(s) :].tolist() == list(s) for s in rule.stop_sequences)
        return found
