"""One rule per file; `plan.py` calls them all."""
