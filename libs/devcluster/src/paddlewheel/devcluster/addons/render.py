"""Renders the objects of the add-ons; has no side effects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

Manifest = dict[str, Any]

_EXAMPLE = "_example"
_EXAMPLE_CHECKSUM = "knative.dev/example-checksum"
_CONTENT = "paddlepaddle.org/content"


def objects(*texts: str) -> list[Manifest]:
    """The objects of YAML streams."""
    return [found for text in texts for found in yaml.load_all(text, yaml.CSafeLoader) if found]


def definitions(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The CustomResourceDefinitions, which come before everything else."""
    return [found for found in manifests if _is_definition(found)]


def others(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Everything but the CustomResourceDefinitions, namespaces first."""
    rest = (found for found in manifests if not _is_definition(found))
    return sorted(rest, key=lambda found: found["kind"] != "Namespace")


def with_content(manifests: Iterable[Manifest], content: str) -> list[Manifest]:
    """Deployments start new pods when `content` changes: their images keep their names."""
    return [_with_content(found, content) if found["kind"] == "Deployment" else found for found in manifests]


def with_images(manifests: Iterable[Manifest], images: Mapping[str, str]) -> list[Manifest]:
    """Replace the names of images in all places."""
    text = json.dumps(list(manifests))
    # The longest first: one name may begin with another.
    for name in sorted(images, key=len, reverse=True):
        text = text.replace(json.dumps(name), json.dumps(images[name]))
    replaced: list[Manifest] = json.loads(text)
    return replaced


def without_examples(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Without documentation in ConfigMaps, and rules of aggregated roles, which the cluster fills in."""
    return [_trimmed(found) for found in manifests]


def merged(manifests: Sequence[Manifest], settings: Sequence[Manifest]) -> list[Manifest]:
    """`manifests`, with the data of the ConfigMaps in `settings`. Other objects of `settings` are appended.

    Raises:
        KeyError: `settings` has a ConfigMap that is not in `manifests`, so no program would read it.
    """
    known = {_identity(found): found for found in manifests}
    for setting in settings:
        if setting["kind"] == "ConfigMap":
            own = known[_identity(setting)]
            known[_identity(setting)] = {**own, "data": {**own.get("data", {}), **setting["data"]}}
        else:
            known[_identity(setting)] = setting
    return list(known.values())


def to_text(manifests: Iterable[Manifest]) -> str:
    """A list that `kubectl apply` takes."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, indent=1)


def _is_definition(manifest: Manifest) -> bool:
    return bool(manifest["kind"] == "CustomResourceDefinition")


def _identity(manifest: Manifest) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _with_content(deployment: Manifest, content: str) -> Manifest:
    spec = deployment["spec"]
    metadata = spec["template"].get("metadata", {})
    annotations = {**metadata.get("annotations", {}), _CONTENT: content}
    template = {**spec["template"], "metadata": {**metadata, "annotations": annotations}}
    return {**deployment, "spec": {**spec, "template": template}}


def _trimmed(manifest: Manifest) -> Manifest:
    if manifest["kind"] == "ConfigMap":
        return _without_example(manifest)
    if "aggregationRule" in manifest:
        return {key: value for key, value in manifest.items() if key != "rules"}
    return manifest


def _without_example(config: Manifest) -> Manifest:
    metadata = config["metadata"]
    annotations = {
        key: value for key, value in metadata.get("annotations", {}).items() if key != _EXAMPLE_CHECKSUM
    }
    data = {key: value for key, value in config.get("data", {}).items() if key != _EXAMPLE}
    return {**config, "metadata": {**metadata, "annotations": annotations}, "data": data}
