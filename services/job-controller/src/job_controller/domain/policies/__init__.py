"""One rule per file; `plan.py` names them in order."""
