"""Measured iteration times with their conditions: the table, its file, and whether its units can be right."""

from tileq_profiling.profile.conditions import Conditions
from tileq_profiling.profile.file import load_profile, save_profile
from tileq_profiling.profile.plausibility import unit_questions
from tileq_profiling.profile.table import Phase, Profile, Scope

__all__ = ["Conditions", "Phase", "Profile", "Scope", "load_profile", "save_profile", "unit_questions"]
