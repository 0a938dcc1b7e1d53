"""The capacity program: the largest stable rate, why it is that, and the tile plan read off it."""

from tileq_theory.capacity.answer import Capacity, LevelUse, Prices
from tileq_theory.capacity.kkt import KktReport, check_kkt
from tileq_theory.capacity.levels import Level
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.single import single_level_rate
from tileq_theory.capacity.solve import capacity

__all__ = [
    "Capacity",
    "KktReport",
    "Level",
    "LevelUse",
    "Limits",
    "Prices",
    "capacity",
    "check_kkt",
    "single_level_rate",
]
