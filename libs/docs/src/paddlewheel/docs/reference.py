"""The generated pages in `docs/reference`, and generated parts of other pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml

from paddlewheel.contracts.crds.kinds import KINDS, Kind
from paddlewheel.docs import commands, kinds, values
from paddlewheel.docs.errors import DocsError
from paddlewheel.docs.excerpts import with_files
from paddlewheel.docs.links import pages

FOLDER = Path("docs/reference")
_CHART = Path("deploy/charts/paddlewheel")


def render(root: Path) -> Mapping[Path, str]:
    """Path to text.

    Raises:
        DocsError: a field lacks an example, or a value its description; names it and where it belongs.
    """
    reference = {f"{kind.kind.lower()}.md": _kind(root, kind) for kind in KINDS}
    reference |= {"commands.md": commands.page(), "chart-values.md": _values(root)}
    made = {root / FOLDER / name: text for name, text in reference.items()}
    written = {path: path.read_text(encoding="utf-8") for path in pages(root) if path not in made}
    return made | {path: with_files(root, text) for path, text in written.items()}


def examples(root: Path, kind: Kind) -> list[Mapping[str, Any]]:
    """The manifests of a kind that show its fields."""
    return list(yaml.safe_load_all((root / _manifests(kind)).read_text(encoding="utf-8")))


def _manifests(kind: Kind) -> Path:
    return FOLDER / "manifests" / f"{kind.kind.lower()}.yaml"


def _kind(root: Path, kind: Kind) -> str:
    try:
        return kinds.page(kind, examples(root, kind))
    except KeyError as error:
        raise DocsError(f"{_manifests(kind)}: set {error.args[0]}, of which it has no example") from None


def _values(root: Path) -> str:
    schema = orjson.loads((root / _CHART / "values.schema.json").read_bytes())
    defaults = yaml.safe_load((root / _CHART / "values.yaml").read_text(encoding="utf-8"))
    try:
        return values.page(schema, defaults)
    except KeyError as error:
        raise DocsError(f"{_CHART}/values.schema.json: describe {error.args[0]}") from None
