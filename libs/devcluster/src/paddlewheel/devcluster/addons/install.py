"""Installs prepared add-ons on a running cluster; what is installed already is brought up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.devcluster import image_load
from paddlewheel.devcluster.addons import render
from paddlewheel.devcluster.addons.prepare import Prepared
from paddlewheel.devcluster.addons.ready import NAMESPACES, holds, missing
from paddlewheel.devcluster.addons.render import Manifest
from paddlewheel.devcluster.api import AdminApi
from paddlewheel.devcluster.binaries import Report
from paddlewheel.devcluster.commands import run, tool
from paddlewheel.devcluster.state import ClusterDirs, ClusterRecord

_ADDON_READY_TIMEOUT_SECONDS = 180.0
_ADDON_CHECK_INTERVAL_SECONDS = 0.2
_UNANSWERED = "failed calling webhook"  # unlike "admission webhook ... denied the request"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(dirs: ClusterDirs, record: ClusterRecord, addon: Prepared, report: Report) -> None:
    """Load its images, apply its objects and wait until it is ready.

    Raises:
        Permanent: AddonNotReady with what is missing and where to look, ImportFailed, CommandFailed.
    """
    api = AdminApi(dirs, record)
    for number, archive in enumerate(addon.archives):
        report(f"{addon.name}: loading {archive.name}", number / len(addon.archives) / 2)
        image_load.load(dirs, record, archive, lambda _text, _share: None)
    report(f"{addon.name}: applying its objects", 0.5)
    _apply(dirs, f"{addon.name}-definitions", render.definitions(addon.objects))
    _await(record, addon.name, lambda: _unestablished(api, addon.objects), report)
    _apply_when_answered(dirs, addon.name, render.others(addon.objects))
    await_addon(dirs, record, addon.name, report)


def await_addon(dirs: ClusterDirs, record: ClusterRecord, addon: str, report: Report) -> None:
    """Wait until an add-on can be used.

    Raises:
        Permanent: AddonNotReady with what is missing and where to look.
    """
    api, since = AdminApi(dirs, record), dirs.plan.stat().st_mtime
    _await(record, addon, lambda: missing(api, addon, since), report)
    report(f"{addon} is ready", 1.0)


def _apply(dirs: ClusterDirs, name: str, manifests: Sequence[Manifest]) -> None:
    """On the server, so that what Knative itself writes into its objects stays."""
    if not manifests:
        return
    file = _file(dirs, name)
    file.write_text(render.to_text(manifests))
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=paddlewheel", "-f", str(file))
    run((tool("kubectl"), "--kubeconfig", str(dirs.kubeconfig), *apply), timeout=_ADDON_READY_TIMEOUT_SECONDS)


def _apply_when_answered(dirs: ClusterDirs, name: str, manifests: Sequence[Manifest]) -> None:
    """Again and again: after a restart of the cluster, Knative's webhook refuses everything until it runs."""
    deadline = time.monotonic() + _ADDON_READY_TIMEOUT_SECONDS
    while True:
        try:
            return _apply(dirs, name, manifests)
        except Permanent as error:
            if _UNANSWERED not in error.message or time.monotonic() > deadline:
                raise
            time.sleep(_ADDON_CHECK_INTERVAL_SECONDS)


def _file(dirs: ClusterDirs, name: str) -> Path:
    folder = dirs.root / "addons"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.json"


def _unestablished(api: AdminApi, manifests: Sequence[Manifest]) -> tuple[str, ...]:
    found = (api.get(_DEFINITIONS) or {"items": []})["items"]
    established = {item["metadata"]["name"] for item in found if holds(item, "Established")}
    names = (definition["metadata"]["name"] for definition in render.definitions(manifests))
    return tuple(f"CustomResourceDefinition {name}" for name in names if name not in established)


def _await(record: ClusterRecord, addon: str, left: Callable[[], tuple[str, ...]], report: Report) -> None:
    deadline = time.monotonic() + _ADDON_READY_TIMEOUT_SECONDS
    while lacks := _asked(left):
        report(f"{addon}: waiting for {lacks[0]}", 0.75)
        if time.monotonic() > deadline:
            again = " ".join(record.spec.with_addons((addon,)).options())
            raise Permanent(
                "AddonNotReady",
                f"{addon} is not ready after {_ADDON_READY_TIMEOUT_SECONDS:.0f} s: {', '.join(lacks)}; see "
                f"`kubectl --namespace {NAMESPACES[addon]} get pods,events`, "
                f"then `paddlewheel cluster up {again}` installs it again",
            )
        time.sleep(_ADDON_CHECK_INTERVAL_SECONDS)


def _asked(left: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    try:
        return left()
    except Retry as error:
        return (error.message,)
