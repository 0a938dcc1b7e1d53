"""Refit the ready-made calibrations to the published measurements and write their tables.

    python tools/calibrations DATA_FOLDER [OUT_FOLDER] [NAME ...]

DATA_FOLDER holds the measurements as they were published (see `sources`). The tables are coefficients and errors,
never rows of the measurements. The same data and library versions give the same figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sources import SOURCES
from table import calibrate, file_name, to_toml

HERE = Path(__file__).resolve().parents[2] / "theory" / "tileq_theory" / "data" / "calibrations"

if __name__ == "__main__":
    data = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[3:] or SOURCES:
        text = to_toml(name, calibrate(name, data))
        (out / file_name(name)).write_text(text, encoding="utf-8")
        sys.stderr.write(f"{name}\n")
