"""What the items on SLAI share: Mistral-7B on an RTX 6000 Ada, its memory, its measurements of Fig. 5a."""

from __future__ import annotations

__all__ = ["BLOCKS", "BLOCK_TOKENS", "CALIBRATION", "FIG_5A", "PAPER"]

from tileq_theory.calibrations import NamedCalibration, named_calibration

PAPER = "Bari et al., arXiv 2508.01002"
CALIBRATION: NamedCalibration = named_calibration("rtx-6000-ada/mistral-7b")
BLOCKS, BLOCK_TOKENS = 14_733, 16  # KV memory of the authors' server
# token budget: mean batch time and median TTFT of a lone 2048-token prompt, ms
FIG_5A = {
    64: ("22.717", "724.32"),
    128: ("24.070", "386.26"),
    256: ("28.817", "238.84"),
    384: ("37.796", "243.89"),
    512: ("46.512", "212.16"),
    768: ("57.083", "204.89"),
    1024: ("74.693", "201.52"),
}
