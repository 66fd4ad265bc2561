"""What decides: pure functions and values, no I/O."""
