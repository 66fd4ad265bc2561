"""A service's settings become its access to the bus."""

from __future__ import annotations

import pytest
from pydantic_settings import SettingsConfigDict

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import ROLES, Role
from paddlewheel.core.settings import ServiceSettings, load_settings


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SAMPLE_")


ENVIRONMENT = {
    "NATS_URL": "tls://nats:4222",
    "NATS_CREDS_FILE": "/etc/bus.creds",
    "NATS_TLS_DIR": "/etc/tls",
    "NATS_REPLICAS": "3",
    "NATS_PROFILE": "production",
    "NATS_MONITOR_URL": "http://nats:8222",
}


def test_all_settings_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(f"SAMPLE_{name}", value)
    assert Access.of(load_settings(Settings), "job-controller") == Access(
        url="tls://nats:4222",
        creds_file="/etc/bus.creds",
        tls_dir="/etc/tls",
        replicas=3,
        profile="production",
        monitor_url="http://nats:8222",
        streams="check",
        reads="directly",
        inbox_prefix="_INBOX_job-controller",
        role="job-controller",
    )


def test_without_settings_the_bus_is_local_and_plain() -> None:
    access = Access.of(Settings(), "dataset-controller")
    assert (access.url, access.creds_file, access.tls_dir) == ("nats://127.0.0.1:4222", "", "")
    assert (access.replicas, access.profile, access.monitor_url) == (1, "development", "")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_service_makes_streams(role: Role) -> None:
    expected = "check" if role.waits_for_streams else "assume"
    assert Access.of(Settings(), role.name).streams == expected


@pytest.mark.parametrize("role", ["cache-runtime", "subscriber"])
def test_agents_and_subscribers_see_no_streams_but_their_own(role: str) -> None:
    assert Access.of(Settings(), role).streams == "assume"


def test_a_service_without_a_declared_role_waits_for_streams() -> None:
    assert Access.of(Settings(), "new-service").streams == "check"
