"""Recompute the error bands of datasheet rooflines:  python tools/error_bands DATA_FOLDER [OUTPUT.toml]."""

from __future__ import annotations

import sys
from pathlib import Path

from table import build, to_toml

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    text = to_toml(build(folder))
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
