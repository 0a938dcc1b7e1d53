"""`python -m tileq` and the `tileq` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    from tileq.cli.run import run

    sys.exit(run())


if __name__ == "__main__":
    main()
