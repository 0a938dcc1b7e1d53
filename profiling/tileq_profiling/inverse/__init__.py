"""Iteration times from end-to-end latencies, through the simulator.

>>> from tileq_profiling.inverse import PARAMETERS
>>> PARAMETERS[-1]
'overhead_s'
"""

from tileq_profiling.inverse.fit import fit_latencies
from tileq_profiling.inverse.forward import PARAMETERS
from tileq_profiling.inverse.identify import Combination
from tileq_profiling.inverse.result import InverseFit, RunFigures

__all__ = ["PARAMETERS", "Combination", "InverseFit", "RunFigures", "fit_latencies"]
