"""Builders, fixtures and starters of real servers, for tests only."""
