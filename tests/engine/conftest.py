"""Makes the referees of this folder importable by name: `tileq_reference`, `queues_exact`, `queues_peers`."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE / "reference"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
