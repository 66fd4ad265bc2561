"""Compiles the protos with buf, and reads their comments and options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

ROOT = Path(__file__).resolve().parents[6]
PACKAGE = "paddlewheel.contracts.generated"
Comments = dict[tuple[int, ...], str]


def build(protos: Path) -> FileDescriptorSet:
    """Compile the protos with buf, from this Python environment or else from PATH."""
    buf = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    if buf is None:
        raise SystemExit("buf is missing: install the PyPI package buf-bin")
    command = [buf, "build", "-o", "-#format=binpb"]
    return FileDescriptorSet.FromString(
        subprocess.run(command, cwd=protos, check=True, stdout=subprocess.PIPE).stdout
    )


def module_of(proto_package: str) -> str:
    """The name of the Python module for a proto package, e.g. `jobs_v1` for `paddlewheel.jobs.v1`."""
    return "_".join(proto_package.split(".")[1:])


def comments_of(file: FileDescriptorProto) -> Comments:
    """Descriptor path to leading comment."""
    found = {tuple(loc.path): loc.leading_comments for loc in file.source_code_info.location}
    return {
        path: "\n".join(line.strip() for line in text.strip().splitlines()) for path, text in found.items()
    }


def ours(descriptors: FileDescriptorSet) -> list[FileDescriptorProto]:
    """The files of this project that contain messages."""
    files = (f for f in descriptors.file if f.package.startswith("paddlewheel."))
    return [f for f in files if f.message_type or f.enum_type]


class Options:
    """Reads our own options (`protos/paddlewheel/options`), for which Python has no generated classes."""

    def __init__(self, descriptors: FileDescriptorSet) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptors.file:
            self._pool.Add(file)

    def of(self, options: Message) -> Mapping[str, Any]:
        """Name to value of the options that a FileOptions or MessageOptions sets."""
        full_name = options.DESCRIPTOR.full_name
        try:
            known = self._pool.FindMessageTypeByName(full_name)
        except KeyError:
            return {}  # no file imports the options
        parsed = message_factory.GetMessageClass(known).FromString(options.SerializeToString())
        return {field.name: value for field, value in parsed.ListFields() if field.is_extension}
