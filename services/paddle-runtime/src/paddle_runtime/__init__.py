"""Serves one saved Paddle inference model over the Open Inference Protocol."""

VERSION = "0.1.0"
"""Of the distribution; an image holds the sources only."""
