"""The files of a model, and the digest over them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paddlewheel.core.errors import Permanent

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PROGRAMS = (".json", ".pdmodel")
_PARAMETERS = ".pdiparams"


class ModelFault(Permanent):
    """The model cannot be served; waiting does not help."""

    exit_code = 3


@dataclass(frozen=True)
class ModelFiles:
    """Paths relative to the model's directory. `parameters` is "" for a model without weights."""

    program: str
    parameters: str


def choose(names: Collection[str]) -> ModelFiles:
    """The program and its weights among the files of a directory.

    A program is NAME.pdmodel, or NAME.json beside NAME.pdiparams. A model without weights is the only JSON
    file of its directory; other JSON files belong to the user.

    Raises:
        ModelFault: `NoModel` or `AmbiguousModel`; lists what is there.
    """
    found = [name for name in sorted(names) if _is_program(name, names)] or _only_json(names)
    if not found:
        listed = ", ".join(sorted(names)[:10]) or "nothing"
        raise ModelFault("NoModel", f"{_REMEDY}; the directory holds {listed}")
    if len(found) > 1:
        raise ModelFault("AmbiguousModel", f"{_REMEDY}, one program only; found {', '.join(found)}")
    stem = found[0].rpartition(".")[0]
    parameters = f"{stem}{_PARAMETERS}"
    return ModelFiles(found[0], parameters if parameters in names else "")


_REMEDY = "the model must be a directory with NAME.pdmodel or NAME.json and NAME.pdiparams"


def manifest_digest(sha256_of: Mapping[str, str]) -> str:
    """The digest of a model: SHA-256 over one line `<sha256 of the file>  <path>` per file, sorted by path.

    It is what these commands print: `find -L . -type f -not -path '*/.*' -printf '%P\\n' |
    LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum`.

    Args:
        sha256_of: hex digest of each file by its path relative to the model's directory, `/` between parts.
    """
    lines = sorted((path.encode(), digest) for path, digest in sha256_of.items())
    whole = hashlib.sha256(b"".join(digest.encode() + b"  " + path + b"\n" for path, digest in lines))
    return f"sha256:{whole.hexdigest()}"


def check_digest(found: str, wanted: str) -> None:
    """Nothing is wanted with "". Raises ModelFault."""
    if wanted and found != wanted:
        raise ModelFault("WrongDigest", f"the files have digest {found}, expected {wanted}")


def is_hidden(path: str) -> bool:
    """Files that do not count: some part of the path begins with a dot, as in mounted ConfigMaps."""
    return any(part.startswith(".") for part in path.split("/"))


def check_path(path: str) -> str:
    """A file's path below the model's directory.

    Raises:
        ModelFault: `InvalidPath`; it would leave the directory, or has no line of its own in the manifest.
    """
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or ".." in parts or re.search(r"[\x00-\x1f\\]", path):
        raise ModelFault("InvalidPath", f"{path!r} cannot be the name of a model's file: rename it")
    return path


def _only_json(names: Collection[str]) -> list[str]:
    found = [name for name in names if name.endswith(".json") and "/" not in name]
    return found if len(found) == 1 else []


def _is_program(name: str, names: Collection[str]) -> bool:
    stem, dot, ending = name.rpartition(".")
    if f"{dot}{ending}" not in _PROGRAMS or "/" in name:
        return False
    return ending == "pdmodel" or f"{stem}{_PARAMETERS}" in names
