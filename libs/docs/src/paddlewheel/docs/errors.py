"""The error of this package."""

from __future__ import annotations


class DocsError(Exception):
    """Names the file and what to correct."""
