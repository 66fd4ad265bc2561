"""Report how far a training is: `report(step=120, total_steps=5000, loss=0.31)`.

Works in the pods of a PaddleJob; anywhere else it does nothing. A report only replaces the values that a
thread sends every two seconds, so training never waits, and no error of the sending ever reaches it.
"""

from paddlewheel_progress.module import flush, report
from paddlewheel_progress.reporter import Reporter

__all__ = ["Reporter", "flush", "report"]
