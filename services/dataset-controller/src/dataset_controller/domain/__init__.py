"""Pure decisions: no clock, no network, no randomness. Start at `sampleset/plan.py`, `samplejob/plan.py`."""
