"""The pytest plugin: all shared fixtures in one place."""

pytest_plugins: list[str] = []
