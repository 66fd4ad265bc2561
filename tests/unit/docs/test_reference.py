"""The reference pages: complete, and every example is one that the API server accepts."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dataset_controller.domain.names import Cond
from job_controller.core import names as job_names
from paddlewheel.contracts.crds.common import CommonStatus
from paddlewheel.contracts.crds.kinds import KINDS, PADDLE_JOB, SAMPLE_SET, Kind
from paddlewheel.contracts.crds.parse import parse_subject
from paddlewheel.contracts.crds.violations import find_violations
from paddlewheel.contracts.reasons import REASONS
from paddlewheel.docs import kinds, reference, values
from paddlewheel.docs.errors import DocsError
from trigger_controller.domain import names as trigger_names

REPOSITORY = Path(__file__).parents[3]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@cache
def pages() -> Mapping[Path, str]:
    return reference.render(REPOSITORY)


def make_schema(**more: Any) -> dict[str, Any]:
    return {"properties": {"image": {"type": "object", "properties": {"tag": {"type": "string", **more}}}}}


def paths_of(value: Any, path: str) -> set[str]:
    """Every path of a manifest; items of a list are at the list's own."""
    if isinstance(value, list):
        return {inner for item in value for inner in paths_of(item, path)}
    if not isinstance(value, Mapping):
        return {path}
    return {path, *(inner for name, item in value.items() for inner in paths_of(item, f"{path}.{name}"))}


@each_kind
def test_every_manifest_of_the_reference_is_valid(kind: Kind) -> None:
    for manifest in reference.examples(REPOSITORY, kind):
        assert (manifest["apiVersion"], manifest["kind"]) == (kind.api_version, kind.kind)
        assert find_violations(kind, parse_subject(kind, manifest)) == ()
        status = kind.status.model_validate(manifest.get("status", {}))
        assert isinstance(status, CommonStatus)
        reasons = {status.reason, *(condition.reason for condition in status.conditions)}
        assert reasons - {""} <= REASONS


@each_kind
def test_no_manifest_of_the_reference_has_an_unknown_field(kind: Kind) -> None:
    fields = kinds.documented(kind)
    # What Kubernetes or another page describes.
    elsewhere = tuple(f"{path}." for path, field in fields.items() if field.is_described_elsewhere)
    for manifest in reference.examples(REPOSITORY, kind):
        used = {p for part in ("spec", "status") if part in manifest for p in paths_of(manifest[part], part)}
        unknown = used - fields.keys() - {"spec", "status"}
        assert {path for path in unknown if not path.startswith(elsewhere)} == set()


@each_kind
def test_every_row_of_a_page_has_a_description_and_an_example_that_is_yaml(kind: Kind) -> None:
    rows = [
        [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]
        for line in kinds.page(kind, reference.examples(REPOSITORY, kind)).splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) == sum(len(section.fields) for section in kinds.sections(kind))
    for name, _, *_, description, example in rows:
        assert description
        assert list(yaml.safe_load(example.strip("`"))) == [name.strip("`")]


def test_a_field_without_an_example_is_named_with_its_file() -> None:
    examples = deepcopy(reference.examples(REPOSITORY, PADDLE_JOB))
    for manifest in examples:
        manifest["spec"].pop("intranet", None)

    with pytest.raises(KeyError, match=r"spec\.intranet"):
        kinds.page(PADDLE_JOB, examples)


def test_defaults_bounds_and_rules_come_from_the_model() -> None:
    page = kinds.page(PADDLE_JOB, reference.examples(REPOSITORY, PADDLE_JOB))

    replicas = "| `replicas` | int32: 0 to 10,000 | required | Desired number of pods. 0 keeps the role"
    assert f"{replicas} without pods. | `replicas: 2` |" in page
    assert "## spec.ps, spec.worker, spec.heter\n" in page
    assert "It must not contain ':': use a plain path such as /data." in page
    assert "- spec has no ps, worker or heter: add spec.worker with replicas and a template" in page
    sets = kinds.page(SAMPLE_SET, reference.examples(REPOSITORY, SAMPLE_SET))
    driver = "| `driver` | string: `juicefs` | `juicefs` | Name of the cache engine. | `driver: juicefs` |"
    assert driver in sets


def test_a_value_of_the_chart_needs_a_description() -> None:
    with pytest.raises(KeyError, match=r"image\.tag"):
        values.page(make_schema(), {"image": {"tag": "dev"}})

    page = values.page(make_schema(description="Tag of all images.", minLength=1), {"image": {"tag": "dev"}})
    assert '| `image.tag` | string: not empty | `"dev"` | Tag of all images. |' in page


def test_every_condition_is_explained_and_every_reason_has_its_meaning() -> None:
    page = pages()[REPOSITORY / reference.REASONS]

    types = {value for name, value in vars(Cond).items() if name.isupper()}
    for module in (job_names, trigger_names):
        types |= {value for name, value in vars(module).items() if name.startswith("CONDITION_")}
    assert {word for word in types if f"`{word}`" not in page} == set()
    meaning = "A pod has failed; the message has its exit code and last line of output."
    assert f"| `PodFailed` | {meaning} |" in page
    with pytest.raises(DocsError, match=r"conditions\.md: put this line"):
        reference.with_reasons("# Conditions\n")


def test_every_command_and_option_is_listed() -> None:
    page = pages()[REPOSITORY / reference.FOLDER / "commands.md"]

    assert "### paddlewheel cluster load\n" in page
    assert "```text\npaddlewheel cluster load [OPTIONS] IMAGE|ARCHIVE...\n```" in page
    assert "| `--output`, `-o` | `text` or `json` | `text` | text for people, json for scripts. |" in page
    assert "| `--follow`, `--no-follow` |  | `--follow` | Wait for new facts" in page
    assert "| `--digits` | integer, 100 to 1797 | `1797` | Number of digits to use, of 1,797. |" in page
    assert "- `export KUBECONFIG=$(paddlewheel cluster kubeconfig)`: then kubectl and helm use it" in page
    assert "- `paddlewheel events -A --since 10m`: facts of all namespaces, then new ones" in page


def test_the_page_of_commands_names_variables_and_required_options() -> None:
    rows = [
        line
        for line in pages()[REPOSITORY / reference.FOLDER / "commands.md"].splitlines()
        if line.startswith("| `--")
    ]

    assert any(row.startswith("| `--name`") and "Variable: `PADDLEWHEEL_CLUSTER`." in row for row in rows)
    assert [row.split("|")[1].strip() for row in rows if row.endswith("Required. |")] == [
        "`--job`",
        "`--image`",
        "`--workers`",
        "`--data`, `-d`",
    ]
