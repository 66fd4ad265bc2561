"""Pure decisions: no clock, no network, no randomness. Begin at `sampleset/plan.py`, `samplejob/plan.py`."""
