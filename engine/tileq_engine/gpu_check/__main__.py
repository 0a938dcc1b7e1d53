"""`python -m tileq_engine.gpu_check`."""

from __future__ import annotations

import sys

from tileq_engine.gpu_check.stand_in import provide_jaxtyping

provide_jaxtyping()  # before anything that annotates arrays is imported

if __name__ == "__main__":
    from tileq_engine.gpu_check.command import main

    sys.exit(main(sys.argv[1:]))
