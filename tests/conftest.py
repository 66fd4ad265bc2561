"""Every test sees the shared fixtures of the test kit."""

pytest_plugins = ["paddlewheel.testkit.plugin"]
