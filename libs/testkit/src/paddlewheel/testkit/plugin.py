"""The pytest plugin: all shared fixtures in one place."""

pytest_plugins: list[str] = [
    "paddlewheel.testkit.logs",
    "paddlewheel.testkit.tasks",
    "paddlewheel.testkit.shared",
    "paddlewheel.testkit.parallel",
    "paddlewheel.testkit.minutes",
    "paddlewheel.testkit.kubernetes",
    "paddlewheel.testkit.nats",
    "paddlewheel.testkit.storage",
    "paddlewheel.testkit.databases",
    "paddlewheel.testkit.service_harness",
]
