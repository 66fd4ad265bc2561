"""Serves one saved Paddle inference model over the Open Inference Protocol."""

VERSION = "0.1.0"
"""The version of the distribution; an image has only the sources."""
