"""Sphinx settings: MyST pages, a reference made of docstrings, nothing fetched from outside."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), *(str(ROOT / part) for part in ("", "theory", "engine", "profiling"))]

import reference_pages  # noqa: E402  (found beside this file)

from tileq import __version__  # noqa: E402

project = "Tileq"
author = "The Tileq authors"
copyright = author  # noqa: A001 (Sphinx calls it so)
release = version = __version__

extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "docstrings",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
# What only some machines have; their docstrings are read all the same.
autodoc_mock_imports = [name for name in ("torch", "triton", "safetensors", "transformers") if find_spec(name) is None]
autodoc_typehints = "none"  # docstrings give shapes and units; signatures with jaxtyping are unreadable on a page
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# Two packages may each have a `Comparison`; links to files beside the site are for readers of the sources, and a test
# of the documents follows them.
suppress_warnings = ["ref.python", "myst.xref_missing"]
default_role = "code"  # docstrings write `name` as Markdown does

html_theme = "furo"
html_title = f"Tileq {release}"
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"  # no script, nothing fetched: the pages read without a network


def setup(app: object) -> None:
    """Write the reference pages before Sphinx lists its sources."""
    reference_pages.write(HERE / "reference", ROOT)
