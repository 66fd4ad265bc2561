"""What a PaddleJob needs, decided without any I/O."""
