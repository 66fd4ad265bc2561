"""Each operation on a data set under each fault: nothing is lost, and what status claims is so.

Reading order: `cases.py` (what happens in a case), `judging.py` (what must be true of it), `faults.py`,
`stand.py`, `play.py`.
"""
