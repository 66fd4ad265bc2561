"""What requests, models and their files mean; no I/O."""
