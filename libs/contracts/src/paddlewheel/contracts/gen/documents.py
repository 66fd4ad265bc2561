"""The generated documents about the contracts:

`docs/asyncapi.yaml`, and the reference in `docs/events.md`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from paddlewheel.contracts.gen import asyncapi, page
from paddlewheel.contracts.gen.catalog import read
from paddlewheel.contracts.gen.protos import ROOT

ASYNCAPI = ROOT / "docs/asyncapi.yaml"
PAGE = ROOT / "docs/events.md"
_WIDTH = 118


class _Dumper(yaml.CSafeDumper):
    """Writes YAML without anchors, which not all tools for AsyncAPI support."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(descriptors: FileDescriptorSet) -> Mapping[Path, str]:
    """The generated documents: path to text."""
    catalog = read(descriptors)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = yaml.dump(
        asyncapi.document(catalog, version), Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True
    )
    return {
        ASYNCAPI: f"# Generated from protos/ by `make gen`; do not edit.\n{text}",
        PAGE: page.with_reference(PAGE.read_text(), catalog),
    }
