"""The images, the inputs that determine their content, and their parents. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

REPOSITORY = "docker.io/paddlewheel"
"""Prefix of every image name; containerd expands the charts' `paddlewheel/<name>` to this."""

TAG = "dev"

BASE = "base"
UV = "uv"
PYTHON = "python"

_LIBS = tuple(f"libs/{name}/src" for name in ("core", "contracts", "bus", "kube", "control", "operator"))
_UV_SCRIPT = "deploy/images/uv.sh"


@dataclass(frozen=True)
class ImageSpec:
    """One image.

    Args:
        name: last part of the image's name.
        dockerfile: path in the repository; the build context is the repository.
        inputs: files and folders (besides the Dockerfile) that determine the image's content.
        parents: build argument -> image it names, which also determines this image's content.
        tools: build argument -> image used only during the build.
    """

    name: str
    dockerfile: str
    inputs: tuple[str, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[str]:
        """Images that must be in the store before this one can be built."""
        return frozenset({*self.parents.values(), *self.tools.values()})


def _wheel_image(name: str) -> ImageSpec:
    """An image of wheels locked next to its Dockerfile."""
    folder = f"deploy/images/{name}"
    return ImageSpec(
        name,
        f"{folder}/Dockerfile",
        (_UV_SCRIPT, f"{folder}/requirements.txt"),
        parents={"PYTHON_BASE": BASE},
        tools={"UV_IMAGE": UV},
    )


def _controller_image(name: str) -> ImageSpec:
    return ImageSpec(
        name,
        f"services/{name}/Dockerfile",
        (*_LIBS, f"services/{name}/src"),
        parents={"PYTHON_IMAGE": PYTHON},
    )


_SPECS = (
    # Slowest first: the scheduler starts ready builds in this order.
    _wheel_image("paddle-cpu"),
    ImageSpec(
        "paddle-runtime",
        "services/paddle-runtime/Dockerfile",
        (*_LIBS[:2], "services/paddle-runtime/src", _UV_SCRIPT, "uv.lock"),
        parents={"PYTHON_IMAGE": PYTHON},
        tools={"UV_IMAGE": UV},
    ),
    ImageSpec(
        PYTHON,
        "deploy/images/python/Dockerfile",
        (_UV_SCRIPT, "uv.lock"),
        parents={"PYTHON_BASE": BASE},
        tools={"UV_IMAGE": UV},
    ),
    ImageSpec(
        "cache-runtime",
        "services/cache-runtime/Dockerfile",
        (
            *_LIBS[:3],
            "services/cache-runtime/src",
            _UV_SCRIPT,
            "deploy/images/cache-runtime/requirements.txt",
        ),
        parents={"PYTHON_IMAGE": PYTHON},
        tools={"UV_IMAGE": UV},
    ),
    _controller_image("job-controller"),
    _controller_image("dataset-controller"),
    _controller_image("trigger-controller"),
    _controller_image("serving-controller"),
    ImageSpec(
        "bus-auth",
        "services/bus-auth/Dockerfile",
        (*_LIBS[:4], "services/bus-auth/src"),
        parents={"PYTHON_IMAGE": PYTHON},
    ),
    _wheel_image("seaweedfs"),
    _wheel_image("nats"),
    _wheel_image("traefik"),
    ImageSpec("redis", "deploy/images/redis/Dockerfile", parents={"PYTHON_BASE": BASE}),
    ImageSpec(BASE, "deploy/images/base/Dockerfile"),
    ImageSpec(UV, "deploy/images/uv/Dockerfile"),
)

CATALOG: Mapping[str, ImageSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})

ON_DEMAND: tuple[str, ...] = ("traefik",)
"""Images of add-ons, built only when they are asked for by name."""

IMAGES: tuple[str, ...] = tuple(name for name in CATALOG if name not in {BASE, UV, PYTHON, *ON_DEMAND})
"""Images that Paddlewheel and its demo run; besides those on demand the others are intermediate images."""

SERVICES: tuple[str, ...] = (
    "job-controller",
    "dataset-controller",
    "cache-runtime",
    "trigger-controller",
    "serving-controller",
    "paddle-runtime",
    "bus-auth",
)


def image_reference(name: str, tag: str = TAG) -> str:
    """The full name of an archive's image, e.g. `docker.io/paddlewheel/nats:dev`."""
    return f"{REPOSITORY}/{name}:{tag}"
