"""The capacity program: the largest stable rate, why it is that, and the tile plan read off it."""

from tileq_theory.capacity.answer import Capacity, LevelUse, Prices
from tileq_theory.capacity.kkt import KktReport, check_kkt
from tileq_theory.capacity.levels import Level
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.plan import TilePlan, tile_plan
from tileq_theory.capacity.population import attainable_rate
from tileq_theory.capacity.ratio import TileRatio, best_rationals, tile_ratio
from tileq_theory.capacity.region import Facet, StabilityRegion, stability_region
from tileq_theory.capacity.restricted import (
    exclusive_capacity,
    rad_capacity,
    rad_padded_demand,
    sarathi_capacity,
    static_capacity,
)
from tileq_theory.capacity.single import single_level_rate
from tileq_theory.capacity.solve import capacity

__all__ = [
    "Capacity",
    "Facet",
    "KktReport",
    "Level",
    "LevelUse",
    "Limits",
    "Prices",
    "StabilityRegion",
    "TilePlan",
    "TileRatio",
    "attainable_rate",
    "best_rationals",
    "capacity",
    "check_kkt",
    "exclusive_capacity",
    "rad_capacity",
    "rad_padded_demand",
    "sarathi_capacity",
    "single_level_rate",
    "stability_region",
    "static_capacity",
    "tile_plan",
    "tile_ratio",
]
