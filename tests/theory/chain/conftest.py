"""Puts this folder on the path, so that its tests share `chain_reference`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
