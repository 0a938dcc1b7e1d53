"""The file edge: one line from what pydantic found."""

from __future__ import annotations

__all__ = ["first_error"]

from pydantic import ValidationError


def first_error(error: ValidationError) -> str:
    """Return the first of pydantic's complaints as `path: message`."""
    one = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in one["loc"]) or "the document"
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {one['msg']}{more}"
