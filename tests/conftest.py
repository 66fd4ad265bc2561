"""Every test sees the shared fixtures of the test kit."""

pytest_plugins = ["paddlewheel.testkit.plugin"]

collect_ignore = ["bench", "chaos", "mutants"]
"""Programs that measure; their own unit tests are in tests/unit."""
