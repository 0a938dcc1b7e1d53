"""Laws of request lengths: one length, and (prompt, output) pairs."""

from tileq_theory.lengths.base import ChunkMoments, JointLaw, LengthLaw
from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.clipped import Clipped
from tileq_theory.lengths.copula import GaussianCopula
from tileq_theory.lengths.empirical import Empirical
from tileq_theory.lengths.fixed import Fixed
from tileq_theory.lengths.geometric import Geometric
from tileq_theory.lengths.independent import Independent
from tileq_theory.lengths.joint_mixture import JointMixture
from tileq_theory.lengths.lognormal import LogNormal
from tileq_theory.lengths.mixture import MixtureLaw
from tileq_theory.lengths.multiple import MultipleOf
from tileq_theory.lengths.pairs import Pairs
from tileq_theory.lengths.parse import parse_lengths
from tileq_theory.lengths.quantile_table import QuantileTable
from tileq_theory.lengths.uniform import Uniform

__all__ = [
    "BlockLaw",
    "ChunkMoments",
    "Clipped",
    "Empirical",
    "Fixed",
    "GaussianCopula",
    "Geometric",
    "Independent",
    "JointLaw",
    "JointMixture",
    "LengthLaw",
    "LogNormal",
    "MixtureLaw",
    "MultipleOf",
    "Pairs",
    "QuantileTable",
    "Uniform",
    "UniformBlocks",
    "parse_lengths",
]
