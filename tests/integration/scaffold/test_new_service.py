"""`make service NAME=notebook` gives a controller that is typed, tested, charted, and runs on real servers.

The skeleton is written into a copy of this checkout, whose packages come before the installed ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.api import ApiCluster
from paddlewheel.testkit.checkout import copy_checkout
from paddlewheel.testkit.kubernetes import CRDS, REUSED

pytestmark = pytest.mark.long

SERVICE, PACKAGE = "notebook-controller", "notebook_controller"
TOOLS = Path(sys.executable).parent
CRD = Key("", "notebooks.batch.paddlepaddle.org")


class Checkout:
    """A copy of the checkout, and commands run in it."""

    def __init__(self, root: Path, kubeconfig: str) -> None:
        self.root = root
        self._kubeconfig = kubeconfig

    def run(self, *argv: str, expected: int = 0) -> str:
        """Gives what the command printed; fails with it when the exit code is another."""
        sources = sorted([*self.root.glob("libs/*/src"), *self.root.glob("services/*/src")])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources)), REUSED: self._kubeconfig}
        env["PATH"] = f"{TOOLS}{os.pathsep}{env['PATH']}"
        done = subprocess.run(
            argv, cwd=self.root, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == expected, f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, *argv: str) -> str:
        return self.run(sys.executable, *argv)


@pytest.fixture(scope="module")
def checkout(
    api_server: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Checkout:
    """With the skeleton, and everything generated that `make gen fmt` generates.

    mypy's cache comes along: what the skeleton did not change need not be checked again.
    """
    source = request.config.rootpath
    target = copy_checkout(source, tmp_path_factory.mktemp("checkout"))
    if (cache := source / ".mypy_cache").is_dir():
        shutil.copytree(cache, target / cache.name)
    copy = Checkout(target, api_server)
    copy.python("-m", "paddlewheel.scaffold", "notebook")
    copy.python("-m", "paddlewheel.contracts.gen")
    copy.python("-m", "paddlewheel.contracts.crds.gen")
    copy.python("-m", "paddlewheel.bus.admin.accounts_gen")
    copy.python("-m", "paddlewheel.docs", "gen")
    copy.run("ruff", "format", "--quiet", ".")
    copy.run("ruff", "check", "--fix", "--quiet", ".")
    return copy


@pytest.fixture
async def without_crd(cluster: ApiCluster) -> AsyncIterator[None]:
    """The API server is shared: the new kind is taken out of it again."""
    yield
    await cluster.delete(CRDS, CRD)


async def test_the_generated_tests_pass_on_real_servers(checkout: Checkout, without_crd: None) -> None:
    printed = checkout.python(
        *(
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"tests/unit/{PACKAGE}",
            f"tests/integration/{PACKAGE}",
        )
    )
    assert "5 passed" in printed


def test_what_is_generated_is_up_to_date(checkout: Checkout) -> None:
    checkout.python("-m", "paddlewheel.contracts.gen", "--check")
    checkout.python("-m", "paddlewheel.contracts.crds.gen", "--check")
    checkout.python("-m", "paddlewheel.docs", "gen", "--check")
    assert (checkout.root / "deploy/charts/paddlewheel/files/crds/notebooks.yaml").exists()


def test_its_reference_page_has_an_example_of_every_field(checkout: Checkout) -> None:
    page = (checkout.root / "docs" / "reference" / "notebook.md").read_text()
    assert "| `image` | string: not empty | required | Container image. |" in page
    assert '"docs/reference/notebook.md"' in (checkout.root / "zensical.toml").read_text()


def test_it_is_typed_and_keeps_to_the_layers(checkout: Checkout) -> None:
    checkout.python("-m", "mypy", f"services/{SERVICE}/src", f"tests/unit/{PACKAGE}")
    checkout.run("lint-imports")


def test_it_is_charted(checkout: Checkout) -> None:
    rendered = checkout.run("helm", "template", "paddlewheel", "deploy/charts/paddlewheel")
    kinds = {
        document["kind"]
        for document in yaml.safe_load_all(rendered)
        if document and document["metadata"]["name"] in (SERVICE, f"paddlewheel-{SERVICE}")
    }
    assert kinds >= {"Deployment", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}


def test_the_same_name_a_second_time_is_refused(checkout: Checkout) -> None:
    checkout.run(sys.executable, "-m", "paddlewheel.scaffold", "notebook", expected=2)
