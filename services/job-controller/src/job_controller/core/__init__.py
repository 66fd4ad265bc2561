"""Rules that every job needs. `plan.py` has the order of a pass."""
