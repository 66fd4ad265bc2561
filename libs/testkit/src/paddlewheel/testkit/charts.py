"""The Helm charts of deploy/charts as tests see them: rendered by Helm itself, parsed once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from paddlewheel.devcluster.commands import tool

REPOSITORY = Path(__file__).parents[5]
CHARTS = REPOSITORY / "deploy" / "charts"

Manifest = dict[str, Any]
Manifests = tuple[Manifest, ...]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm of this environment; the caller judges the exit code."""
    # A rendering fits into memory; Go's garbage collector takes a third of Helm's processor time.
    environment = os.environ | {"GOGC": "off"}
    return subprocess.run(
        [tool("helm"), *arguments], capture_output=True, text=True, check=False, env=environment
    )


@cache
def render(chart: str, *values: str, namespace: str = "paddle-system") -> Manifests:
    """The manifests of a chart with these `--set` values.

    Fails the test if Helm refuses. Do not change the result.
    """
    flags = [part for value in values for part in ("--set", value)]
    ended = helm("template", "release", str(CHARTS / chart), "--namespace", namespace, *flags)
    assert ended.returncode == 0, ended.stderr
    return tuple(document for document in yaml.load_all(ended.stdout, yaml.CSafeLoader) if document)


def render_notes(folder: Path, *values: str) -> str:
    """The notes that Helm prints after it has installed the main chart. Leaves a copy of the chart in
    `folder`.

    `helm template` does not print the notes, and `helm install --dry-run` needs a cluster.
    """
    chart = shutil.copytree(CHARTS / "paddlewheel", folder / "paddlewheel")
    notes = chart / "templates" / "NOTES.txt"
    text = (
        f'{{{{ define "notes" }}}}{notes.read_text()}{{{{ end }}}}text: {{{{ include "notes" . | toJson }}}}'
    )
    notes.rename(notes.with_name("notes.yaml")).write_text(text)
    flags = [part for value in ("crds.install=false", *values) for part in ("--set", value)]
    ended = helm("template", "release", str(chart), "--show-only", "templates/notes.yaml", *flags)
    assert ended.returncode == 0, ended.stderr
    return str(yaml.safe_load(ended.stdout)["text"])


def services() -> Manifests:
    """The main chart's own objects, without the CRDs, which take long to parse."""
    return render("paddlewheel", "crds.install=false")


def named(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """The one object of that kind and name."""
    return next(m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name))


def pod_specs(manifests: Iterable[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Owner's name and pod spec of every Deployment and StatefulSet."""
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "StatefulSet"}:
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
