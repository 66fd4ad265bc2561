"""Settings are read from the environment. Errors name the variable."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from paddlewheel.core.errors import Permanent
from paddlewheel.core.settings import ServiceSettings, load_settings


class Sample(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SAMPLE_")


def test_reads_variables_with_the_service_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_NATS_URL", "nats://nats:4222")
    monkeypatch.setenv("SAMPLE_WORKERS", "9")
    settings = load_settings(Sample)
    assert (settings.nats_url, settings.workers, settings.namespace) == ("nats://nats:4222", 9, "")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings(Sample).workers = 3  # type: ignore[misc]


def test_an_unknown_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_SERVICE_HOST", "10.0.0.1")
    assert load_settings(Sample).workers == 4


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SAMPLE_WORKERS", "0", "greater than or equal to 1"),
        ("SAMPLE_WORKERS", "many", "valid integer"),
        ("SAMPLE_NATS_REPLICAS", "6", "less than or equal to 5"),
        ("SAMPLE_NATS_PROFILE", "test", "'development' or 'production'"),
        ("SAMPLE_LOG_LEVEL", "loud", "'debug', 'info'"),
        ("SAMPLE_HTTP_PORT", "70000", "less than or equal to 65535"),
    ],
)
def test_error_names_the_variable_of_an_invalid_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Permanent) as caught:
        load_settings(Sample)
    assert f"set {variable}, now '{value}'" in str(caught.value)
    assert words in str(caught.value)
