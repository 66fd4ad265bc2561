"""The pytest plugin: all shared fixtures in one place."""

pytest_plugins: list[str] = [
    "paddlewheel.testkit.tasks",
    "paddlewheel.testkit.kubernetes",
    "paddlewheel.testkit.nats",
    "paddlewheel.testkit.storage",
    "paddlewheel.testkit.service_harness",
]
