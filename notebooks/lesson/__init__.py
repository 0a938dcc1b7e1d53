"""What the notebooks share: their size, their style, and the check of an exercise.

Each notebook begins with `from lesson import start, exNN` and `size = start()`.
"""

from lesson.answers import Verdict
from lesson.setup import VARIABLE, Size, start

__all__ = ["VARIABLE", "Size", "Verdict", "start"]
