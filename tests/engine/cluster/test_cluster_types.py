"""Whatever is given to constructors of clusters, tenants and prefix caches: an object, or one line of `InputError`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_wrong_types_get_one_line_and_never_an_error_of_pythons() -> None:
    script = Path(__file__).with_name("wrong_types.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    *faults, last = done.stdout.splitlines()
    assert faults == []
    counts = re.fullmatch(r"(\d+) tried, (\d+) refused", last)
    assert counts and int(counts[1]) > 1000 and int(counts[2]) > 0.7 * int(counts[1])
