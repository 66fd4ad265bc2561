"""Errors, clock, settings and telemetry that every package shares."""
