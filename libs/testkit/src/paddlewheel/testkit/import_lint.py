"""Lets import-linter treat `paddlewheel.core`, `paddlewheel.sdk` ... as packages of their own.

`paddlewheel` is spread over many folders, one of which (the SDK's) has an `__init__.py` with `extend_path`.
grimp knows such portions only below a namespace package without that file. `.importlinter` loads this module
through `contract_types` before the graph is built.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec

from grimp.adaptors.packagefinder import ImportLibPackageFinder
from grimp.application.config import settings
from importlinter.contracts.layers import LayersContract


class PortionFinder(ImportLibPackageFinder):
    """Accepts a package below one whose path is extended over several folders."""

    def _has_a_non_namespace_parent(self, spec: ModuleSpec) -> bool:
        return False


class PortionLayers(LayersContract):
    """Layers; importing its module is what matters."""


settings.configure(PACKAGE_FINDER=PortionFinder())
