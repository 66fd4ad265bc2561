"""Every test sees the shared fixtures. How long an example takes on a busy machine says nothing about it."""

from hypothesis import HealthCheck, settings

settings.register_profile("paddlewheel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("paddlewheel"), max_examples=25)
settings.load_profile("paddlewheel")

pytest_plugins = ["paddlewheel.testkit.plugin"]

collect_ignore = ["bench", "chaos", "mutants", "rights"]
"""Programs; their own unit tests are in tests/unit."""
