"""Errors, clock, settings base and telemetry set-up shared by every package."""
