"""What decides: pure."""
