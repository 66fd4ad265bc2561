"""Rendering the template's files and editing the shared ones: all of it or nothing."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from paddlewheel.scaffold.insertions import EDITS, INSERTIONS, insert
from paddlewheel.scaffold.naming import Naming

_SUFFIX = ".tmpl"


class ExistsError(ValueError):
    """A file of the new service exists already; names it."""


def write(root: Path, naming: Naming) -> list[Path]:
    """Write the new service into the checkout.

    Returns:
        Paths that were created or changed, below `root`.

    Raises:
        ExistsError, AnchorError: nothing has been written.
    """
    names = naming.placeholders
    contents = {**_created(root, names), **_edited(root, names)}
    for path, content in contents.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return sorted(contents)


def _created(root: Path, names: dict[str, str]) -> dict[Path, str]:
    created = {}
    for path, template in _templates(resources.files("paddlewheel.scaffold") / "template"):
        target = Path(_named(path, names))
        if (root / target).exists():
            raise ExistsError(f"{target} exists already; choose another name or remove it")
        created[target] = Template(template).substitute(names)
    return created


def _templates(folder: Traversable, below: str = "") -> list[tuple[str, str]]:
    found = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        path = f"{below}{entry.name}"
        if entry.is_dir():
            found += _templates(entry, f"{path}/")
        elif path.endswith(_SUFFIX):
            found.append((path.removesuffix(_SUFFIX), entry.read_text()))
    return found


def _named(path: str, names: dict[str, str]) -> str:
    for name in ("service", "package", "context", "lower"):
        path = path.replace(f"__{name}__", names[name])
    return path


def _edited(root: Path, names: dict[str, str]) -> dict[Path, str]:
    edited: dict[Path, str] = {}
    for insertion in INSERTIONS:
        path = Path(insertion.path)
        edited[path] = insert(edited.get(path) or (root / path).read_text(), insertion, names)
    for name, edits in EDITS.items():
        path = Path(name)
        for edit in edits:
            edited[path] = edit(edited.get(path) or (root / path).read_text(), names)
    return edited
