"""Generates models, the registry of events and their documentation from `protos/`."""
