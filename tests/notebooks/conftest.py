"""What the notebooks import from their own folder, and the solutions beside these tests, are importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parents[1] / "notebooks"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
