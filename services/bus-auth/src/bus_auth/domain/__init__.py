"""What is decided, without I/O."""
