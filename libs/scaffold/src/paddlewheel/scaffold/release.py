"""`make dist`: everything that a release would publish, in one folder with its checksums.

Wheels of the libraries, the SDK and the command; the chart as an archive and as an OCI artifact (a layout,
published by `oras copy --from-oci-layout` or `skopeo copy oci:`); the images as archives.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[5]
CHART = ROOT / "deploy" / "charts" / "paddlewheel"
WHEELS = ("core", "contracts", "bus", "sdk", "kube", "control", "operator", "devcluster", "cli", "progress")
SUMS = "SHA256SUMS"

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CHART_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_TOOL_TIMEOUT_SECONDS = 1800.0


def main() -> int:
    """Fill the folder and print what is in it."""
    parser = argparse.ArgumentParser(prog="make dist", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dist")
    parser.add_argument("--without-images", action="store_true", help="they take minutes to build")
    wanted = parser.parse_args()
    out = wanted.out.resolve()
    if not is_replaceable(out):
        sys.stderr.write(f"--out: {out} is no release (it has no {SUMS}); choose an empty folder\n")
        return 2
    fresh = out.with_name(f"{out.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    build_wheels(fresh / "wheels")
    build_chart(fresh / "charts")
    if not wanted.without_images:
        build_images(fresh / "images")
    for path in write_sums(fresh):
        sys.stdout.write(f"{path.stat().st_size / 2**20:8.1f} MiB  {path.relative_to(fresh)}\n")
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)
    return 0


def is_replaceable(out: Path) -> bool:
    """Whether the folder is absent, empty, or an earlier release."""
    return not out.exists() or (out.is_dir() and ((out / SUMS).exists() or not any(out.iterdir())))


def build_wheels(out: Path) -> None:
    """One wheel for each library."""
    for name in WHEELS:
        _run(
            program("uv"),
            "build",
            "--quiet",
            "--wheel",
            "--package",
            f"paddlewheel-{name}",
            "--out-dir",
            out,
        )
    (out / ".gitignore").unlink(missing_ok=True)


def build_chart(out: Path) -> None:
    """The chart's archive, and the OCI layout `<chart>-oci` with the same content."""
    out.mkdir(parents=True)
    _run(program("helm"), "package", CHART, "--destination", out)
    (archive,) = out.glob("*.tgz")
    write_oci_layout(archive, out / f"{CHART.name}-oci")


def write_oci_layout(archive: Path, layout: Path) -> None:
    """Write the chart as `helm push` stores it in a registry."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"{CHART.name}/Chart.yaml")
        assert file is not None
        about = yaml.safe_load(file)
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(blobs, _json(about), _CHART_CONFIG),
        "layers": [_blob(blobs, archive.read_bytes(), _CHART_CONTENT)],
        "annotations": {
            "org.opencontainers.image.title": about["name"],
            "org.opencontainers.image.version": about["version"],
            "org.opencontainers.image.description": about["description"],
        },
    }
    entry = _blob(blobs, _json(manifest), _MANIFEST)
    entry["annotations"] = {"org.opencontainers.image.ref.name": about["version"]}
    (layout / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [entry]}))
    (layout / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))


def build_images(out: Path) -> None:
    """Archives for `docker load`, `ctr images import` and `paddlewheel cluster load`."""
    out.mkdir(parents=True)
    printed = _run(program("paddlewheel"), "images", "build", "--output", "json")
    for name, archive in json.loads(printed).items():
        target = out / f"{name}.tar"
        # The archive of pause is rewritten in place.
        shutil.copy2(archive, target) if name == "pause" else _link(Path(archive), target)


def write_sums(out: Path) -> list[Path]:
    """Write the checksums of all files, which are returned, in the format of sha256sum."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    lines = (f"{_digest(path)}  {path.relative_to(out)}\n" for path in files)
    (out / SUMS).write_text("".join(lines))
    return files


def _blob(blobs: Path, content: bytes, media_type: str) -> dict[str, Any]:
    """Store it; returns its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _link(source: Path, target: Path) -> None:
    """Images are large: a copy only on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def program(name: str) -> str:
    """Path of a tool that the checkout's environment brings."""
    places: Iterable[Path] = (Path(sys.executable).parent, ROOT / "build" / "uv" / "bin")
    found = next((path for place in places if (path := shutil.which(name, path=str(place)))), None)
    return found or shutil.which(name) or name


def _run(*argv: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TOOL_TIMEOUT_SECONDS,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
