"""A calibration: the fitted iteration time, how far it may be trusted, and its file."""

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.calibration.file import load_calibration, save_calibration
from tileq_profiling.calibration.rate_band import RateBand, lambda_band

__all__ = ["Calibration", "RateBand", "lambda_band", "load_calibration", "save_calibration"]
