"""How tokens are drawn and when a request stops, per request."""

from __future__ import annotations

__all__ = ["Sampling", "SamplingTable"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

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
_NOBODY = np.zeros(0, dtype=np.int64)


class SamplingTable:
    """The sampling of every request by index; what is the same for many is kept once."""

    def __init__(self) -> None:
        self._rules: list[Sampling] = []
        self._eos: tuple[int, ...] = ()
        self._plain = True  # nobody samples, nobody stops early: nothing to look up
        self._zeros = self._ones = np.zeros(0)
        self._nothing = np.zeros(0, dtype=np.int64)

    def add(self, rule: Sampling, eos_token_ids: tuple[int, ...]) -> None:
        """Add the rule of the next request."""
        self._rules.append(rule)
        self._eos = eos_token_ids
        stops = rule.stop_token_ids or rule.stop_sequences or (eos_token_ids and not rule.ignore_eos)
        self._plain = self._plain and not rule.temperature and not stops

    def rows(self, requests: Int[np.ndarray, "out"], steps: Int[np.ndarray, "out"]) -> SampleRows:
        """Return how the next token of each of these requests is drawn."""
        if self._plain:
            count = requests.size
            if count > self._zeros.size:  # made once: every iteration asks for them
                self._zeros, self._ones = np.zeros(2 * count), np.ones(2 * count)
                self._nothing = np.zeros(2 * count, dtype=np.int64)
            zeros, whole = self._zeros[:count], self._nothing[:count]
            return SampleRows(zeros, self._ones[:count], whole, whole, steps, greedy=True)
        rules = [self._rules[i] for i in requests.tolist()]
        temperature = np.array([r.temperature for r in rules], dtype=float)
        return SampleRows(
            temperature,
            np.array([r.top_p for r in rules], dtype=float),
            np.array([r.top_k for r in rules], dtype=np.int64),
            np.array([r.seed for r in rules], dtype=np.int64),
            steps,
            greedy=not bool(temperature.any()),
        )

    def stopped(
        self, requests: Int[np.ndarray, "out"], tokens: Int[np.ndarray, "out"], histories: Histories
    ) -> Int[np.ndarray, "ended"]:
        """Return the requests that end by a stop rule with their token, which is in their history already."""
        if self._plain:
            return _NOBODY
        ended = []
        for request, token in zip(requests.tolist(), tokens.tolist(), strict=True):
            rule = self._rules[request]
            over = token in rule.stop_token_ids or (not rule.ignore_eos and token in self._eos)
            if rule.stop_sequences and not over:
                told = histories.generated(request)
                over = any(told[-len(s) :].tolist() == list(s) for s in rule.stop_sequences)
            if over:
                ended.append(request)
        return np.array(ended, dtype=np.int64)
