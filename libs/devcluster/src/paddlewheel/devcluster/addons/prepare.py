"""Prepares add-ons: builds their images and renders their objects, only of those asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.devcluster import binaries
from paddlewheel.devcluster.addons import render
from paddlewheel.devcluster.addons.render import Manifest
from paddlewheel.devcluster.binaries import (
    GATEWAY_API,
    KNATIVE,
    KNATIVE_INGRESS,
    Binaries,
    Module,
    Report,
    cache_dir,
)
from paddlewheel.devcluster.image_archive import write_program_archive
from paddlewheel.devcluster.images import (
    ImageProgress,
    build_images,
    content_tag,
    image_reference,
    remove_old_archives,
)

MODULES: dict[str, tuple[Module, ...]] = {
    "gateway": (GATEWAY_API,),
    "knative": (KNATIVE, KNATIVE_INGRESS),
}
"""Programs and manifests by add-on."""
KNATIVE_IMAGES = {
    "ko://knative.dev/serving/cmd/activator": "activator",
    "ko://knative.dev/serving/cmd/autoscaler": "autoscaler",
    "ko://knative.dev/serving/cmd/controller": "controller",
    "ko://knative.dev/serving/cmd/queue": "queue",
    "ko://knative.dev/serving/cmd/webhook": "webhook",
    "ko://knative.dev/net-gateway-api/cmd/controller": "ingress",
}
"""The program in each image, by the name that Knative's manifests have for it."""


@dataclass(frozen=True)
class Prepared:
    """An add-on that can be installed: image archives, and the objects to apply."""

    name: str
    archives: tuple[Path, ...]
    objects: tuple[Manifest, ...]


def modules(addons: Iterable[str]) -> tuple[Module, ...]:
    """The Go modules from which programs must be built."""
    return tuple(module for addon in addons for module in MODULES[addon])


def prepare(addons: Iterable[str], built: Binaries, report: Report) -> tuple[Prepared, ...]:
    """Build the images of these add-ons, except images that exist already.

    Args:
        built: the programs of `modules`.

    Raises:
        Permanent: ImageBuildFailed with the end of the build log.
    """
    known: dict[str, Callable[[Binaries, Report], Prepared]] = {"gateway": _gateway, "knative": _knative}
    return tuple(known[addon](built, report) for addon in addons)


def gateway_objects(definitions: str, manifests: str, content: str) -> tuple[Manifest, ...]:
    """The Gateway API's definitions and the gateway, which restarts when `content` changes."""
    return tuple(render.with_content(render.objects(definitions, manifests), content))


def knative_objects(serving: str, ingress: str, settings: str, content: str) -> tuple[Manifest, ...]:
    """Knative's own manifests with our images and settings; pods restart when `content` changes."""
    own = render.without_examples(render.objects(serving, ingress))
    merged = render.merged(own, render.objects(settings))
    names = {name: image_reference(image_name(program)) for name, program in KNATIVE_IMAGES.items()}
    return tuple(render.with_content(render.with_images(merged, names), content))


def image_name(program: str) -> str:
    """`knative-queue` for `queue`."""
    return f"knative-{program}"


def _gateway(_built: Binaries, report: Report) -> Prepared:
    def hear(progress: ImageProgress) -> None:
        report(f"image {progress.image}: {progress.step}", 1.0)

    repository = binaries.deploy_folder().parent
    archive = build_images(["traefik"], hear, repository=repository)["traefik"]
    definitions = binaries.data_file(GATEWAY_API).read_text()
    objects = gateway_objects(definitions, _own("gateway"), content_tag(archive))
    return Prepared("gateway", (archive,), objects)


def _knative(built: Binaries, report: Report) -> Prepared:
    report("images of Knative", 1.0)
    archives = tuple(_archive(built.path(program)) for program in KNATIVE_IMAGES.values())
    serving, ingress = (binaries.data_file(module) for module in (KNATIVE, KNATIVE_INGRESS))
    content = f"{serving.parent.name}.{ingress.parent.name}"
    objects = knative_objects(serving.read_text(), ingress.read_text(), _own("knative"), content)
    return Prepared("knative", archives, objects)


def _archive(program: Path) -> Path:
    """The archive of the image with one program, named like those of other images."""
    name = image_name(program.name)
    key = program.parent.name.rpartition("-")[2]
    path = cache_dir() / "images" / f"{name}-{key}.tar"
    if not path.exists():
        write_program_archive(program, path, image_reference(name))
        remove_old_archives(path.parent, name)
    return path


def _own(addon: str) -> str:
    return (binaries.deploy_folder() / "addons" / f"{addon}.yaml").read_text()
