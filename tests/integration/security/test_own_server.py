"""Agents connect to a NATS server of one's own, with the files that the chart gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import RUNTIME, make_set, spec_of

from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.facts import SOURCE
from dataset_controller.config import Settings
from dataset_controller.domain.sampleset import render as dataset_manifests
from paddlewheel.bus import connect
from paddlewheel.bus.access import Access
from paddlewheel.bus.callout.certificates import make_authority, make_key, make_server
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.testkit.charts import pod_specs, render
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import patiently

OWN = ("crds.install=false", "nats.enabled=false", "nats.tls.existing=true", "nats.credentialsSecret=mine")


async def test_an_agent_connects_to_a_server_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    authority = make_authority(now)
    files = {**make_server(authority, ["localhost"], now), "key.pem": make_key(now)["tls.key"]}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    user = CalloutKey(tmp_path / "key.pem")
    sources = {"bus-ca": {"ca.crt": authority["tls.crt"]}, "mine": {"nats.creds": user.seed.encode()}}
    server = NatsServer(
        tmp_path / "nats",
        {
            "tls": {"cert_file": str(tmp_path / "tls.crt"), "key_file": str(tmp_path / "tls.key")},
            "authorization": {"users": [{"nkey": user.public.user}]},
        },
    )
    server.start()
    try:
        settings = agent_settings(f"tls://localhost:{server.port}", tmp_path / "pod", sources, monkeypatch)
        # bus-installer has the same files.
        creds, tls = str(settings.nats_creds_file), str(settings.nats_tls_dir)
        installer = NatsBus(Access(settings.nats_url, creds_file=creds, tls_dir=tls))
        await patiently(installer.install)
        await installer.close()
        agent = await connect(Access.of(settings, SOURCE), name=settings.pod_name)
        try:
            nodes = agent.key_value(NODES_BUCKET)
            await patiently(lambda: nodes.put("node-1.uid.status", b"{}"))
            assert (await nodes.get("node-1.uid.status")).value == b"{}"
        finally:
            await agent.close()
    finally:
        server.stop()


def agent_settings(
    url: str, folder: Path, sources: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> CacheRuntimeSettings:
    """The settings of a runtime pod by the chart and dataset-controller, with its files in `folder`."""
    [container] = dict(pod_specs(render("paddlewheel", *OWN, f"nats.url={url}")))["dataset-controller"][
        "containers"
    ]
    for each in container["env"]:
        if "value" in each:
            monkeypatch.setenv(each["name"], each["value"])
    own = make_set()
    config = Settings().runtime
    pod: dict[str, Any] = dataset_manifests.pod_template(own.identity, RUNTIME, spec_of(own), config)["spec"]
    [mounted] = [volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "bus"]
    folder.mkdir()
    for source in mounted:
        [place] = source.values()
        for item in place["items"]:
            (folder / item["path"]).write_bytes(sources[place["name"]][item["key"]])
    [container] = pod["containers"]
    for each in container["env"]:
        value = each.get("value", "runtime-0")
        monkeypatch.setenv(each["name"], value.replace("/etc/paddlewheel/bus", str(folder)))
    return CacheRuntimeSettings()
