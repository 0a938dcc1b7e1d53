"""What reading a file of step times gives: a profile per engine or condition, what was left out, what looks wrong."""

from __future__ import annotations

__all__ = ["Part", "ProfileReading", "finish", "regime_warnings"]

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tileq_profiling.profile import Profile, unit_questions
from tileq_profiling.steps.names import in_catalogue
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True)
class Part:
    """Measurements of one engine or under one condition: `labels` say which ({"engine": "0"}, {"hardware": "h100"})."""

    labels: Mapping[str, str]
    profile: Profile

    @property
    def name(self) -> str:
        """Labels in one line."""
        return ", ".join(f"{key}={value}" for key, value in self.labels.items()) or "all"


@dataclass(frozen=True, slots=True)
class ProfileReading:
    """Everything that one file of step times told.

    Parameters
    ----------
    parts
        One profile per engine (a log of several) or per condition (a table of several devices).
    format
        Name in `profile_reader_names()`.
    joinable
        Whether the parts ran under the same conditions, so that they may be fitted together.
    left_out
        One line for each kind of row that was left out, with its count.
    warnings
        What a user should know before relying on the numbers.
    """

    parts: tuple[Part, ...]
    format: str
    joinable: bool
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def choose(self, where: Mapping[str, str] | None = None) -> Profile:
        """Return the rows of the parts whose labels agree with `where`; all of them when it is None.

        Raises
        ------
        InputError
            No part agrees, or parts of different conditions are left; the message lists what there is.
        """
        wanted = {key: str(value) for key, value in (where or {}).items()}
        chosen = [part for part in self.parts if all(part.labels.get(k) == v for k, v in wanted.items())]
        there = "; ".join(part.name for part in self.parts[:8]) + ("; ..." if len(self.parts) > 8 else "")
        if not chosen:
            told = ", ".join(f"{key}={value}" for key, value in wanted.items())
            raise InputError(f"no measurement has {told}; the file holds: {there}")
        if len(chosen) > 1 and not self.joinable:
            example = chosen[0].labels
            raise InputError(
                f"the file holds measurements under {len(chosen)} different conditions ({there}); choose one, as in "
                f"where={dict(example)!r}"
            )
        profile = Profile.join([part.profile for part in chosen])
        notes = [*profile.conditions.notes, *self.left_out, *self.warnings]
        if len(chosen) > 1:
            told = "; ".join(f"{part.name}: {len(part.profile)} rows" for part in chosen[:8])
            notes.append(f"{len(chosen)} engines read together ({told}); where= reads one")
        return profile.with_(conditions=replace(profile.conditions, notes=tuple(dict.fromkeys(notes))))


def regime_warnings(profile: Profile) -> list[str]:
    """Return a line for each regime without which a fit cannot tell its coefficients apart."""
    phase = profile.phase
    found = []
    if np.all(phase == "decode"):
        found.append(
            "only decode batches: the time of prefill tokens cannot be told from it; add measurements of prefill"
        )
    elif np.all(phase == "prefill"):
        found.append(
            "only prefill batches: the time of reading KV in decodes cannot be told; add measurements of decode"
        )
    if np.unique(profile.tokens).size == 1 and len(profile) > 1:
        found.append(f"all batches have {profile.tokens[0]:g} tokens: the time per token cannot be told from it")
    return found


def finish(
    format_name: str,
    parts: list[Part],
    *,
    joinable: bool,
    left_out: list[str] | None = None,
    warnings: list[str] | None = None,
    questions: bool = True,
) -> ProfileReading:
    """Return the reading, with the questions that implausible times and lone regimes raise."""
    found = list(warnings or [])
    parts = [Part(part.labels, part.profile.with_(conditions=in_catalogue(part.profile.conditions))) for part in parts]
    for part in parts:
        with np.errstate(over="ignore", divide="ignore"):  # a time near 0 gives an infinite rate, which is questioned
            asked = [*(unit_questions(part.profile) if questions else ()), *regime_warnings(part.profile)]
        found += [f"{part.name}: {one}" if len(parts) > 1 else one for one in asked]
    return ProfileReading(tuple(parts), format_name, joinable, tuple(left_out or ()), tuple(dict.fromkeys(found)))
