"""Image archives as files: the image names they contain and their identity; archives of single programs."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.configs import PAUSE_IMAGE

_OCI_NAME = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True)
class Archive:
    """One archive file.

    Args:
        identity: file name, size and modification time; identifies the archive without reading it.
        references: the image names it contains.
    """

    path: Path
    identity: str
    references: tuple[str, ...]

    def is_what(self, held: Mapping[str, str]) -> bool:
        """Whether `held` (identities by image name) maps all its image names to this file."""
        return all(held.get(reference) == self.identity for reference in self.references)


def read_archives(paths: Iterable[Path]) -> tuple[Archive, ...]:
    """Read several archives."""
    return tuple(read_archive(path) for path in paths)


def read_archive(path: Path) -> Archive:
    """Read the image names from a docker archive's manifest or an OCI archive's index.

    Raises:
        Permanent: NoArchive when it is not a tar file, NoImageName when containerd could not name its images.
    """
    try:
        with tarfile.open(path) as tar:
            references = _docker_names(tar) or _oci_names(tar)
    except (OSError, EOFError, tarfile.TarError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = str(error).partition("\n")[0].rstrip(":")
        raise Permanent("NoArchive", f"{path} is not an image archive: {why}") from error
    if not references:
        raise Permanent(
            "NoImageName",
            f"{path} does not say what its image is called; save it by name, not by id: "
            f"`docker save NAME:TAG -o {path.name}`",
        )
    found = path.stat()
    return Archive(path, f"{path.name}-{found.st_size}-{found.st_mtime_ns}", references)


def write_pause_archive(program: Path, path: Path, name: str = PAUSE_IMAGE) -> None:
    """Write a docker archive of one layer with the program as /pause and /gate, unless it is unchanged."""
    content = program.read_bytes()
    image = _image({"pause": content, "gate": content}, "/pause", "65535:65535", name)
    if not path.exists() or path.read_bytes() != image:
        path.write_bytes(image)


def write_program_archive(program: Path, path: Path, name: str, also: Iterable[str] = ()) -> None:
    """Write a docker archive of one layer with a static program, which an unprivileged user runs.

    It is written to a temporary file and renamed: a file of that name is always complete.

    Args:
        also: further places of the program in the image, such as `bin/bash`.
    """
    files = dict.fromkeys((program.name, *also), program.read_bytes())
    image = _image(files, f"/{program.name}", "65532:65532", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as fresh:
        fresh.write(image)
    Path(fresh.name).rename(path)


def _image(files: dict[str, bytes], entrypoint: str, user: str, name: str) -> bytes:
    layer = _tar(files, mode=0o755)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [entrypoint], "User": user},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar(
        {"config.json": _json(config), "manifest.json": _json(manifest), "layer.tar": layer}, mode=0o644
    )


def _docker_names(tar: tarfile.TarFile) -> tuple[str, ...]:
    images = _read_json(tar, "manifest.json") or []
    return tuple(tag for image in images for tag in image["RepoTags"] or ())


def _oci_names(tar: tarfile.TarFile) -> tuple[str, ...]:
    """The names of the images. A tag alone (`latest`) is not a name."""
    index = _read_json(tar, "index.json") or {"manifests": []}
    noted = [image.get("annotations") or {} for image in index["manifests"]]
    names = [next((note[key] for key in _OCI_NAME if key in note), "") for note in noted]
    return tuple(name for name in names if "/" in name or ":" in name)


def _read_json(tar: tarfile.TarFile, name: str) -> Any:
    """None when there is no such file."""
    if name not in tar.getnames():
        return None
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file")
    return json.load(file)


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
