"""Laws of request lengths."""

from tileq_theory.lengths.base import JointLaw, LengthLaw

__all__ = ["JointLaw", "LengthLaw"]
