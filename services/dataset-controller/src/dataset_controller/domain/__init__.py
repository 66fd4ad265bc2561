"""Pure decisions: no clock, no network, no randomness. Start with `sampleset/plan.py` and `samplejob/plan.py`."""
