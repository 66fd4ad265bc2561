"""Examples on pages would run: manifests are valid, commands and files exist, code parses."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from markdown_it import MarkdownIt

from job_controller.core import names as job_names
from paddlewheel.cli.app import app, load
from paddlewheel.cli.main import COMMANDS
from paddlewheel.contracts.crds.kinds import KINDS
from paddlewheel.contracts.crds.paddlejob import ENDPOINT_VARIABLES
from paddlewheel.contracts.crds.parse import parse_subject
from paddlewheel.contracts.crds.violations import find_violations
from paddlewheel.docs.errors import DocsError
from paddlewheel.docs.excerpts import with_files
from paddlewheel.docs.links import pages
from trigger_controller.domain import names as trigger_names

REPOSITORY = Path(__file__).parents[3]
OURS = {(kind.api_version, kind.kind): kind for kind in KINDS}
IMAGE = "paddlewheel/paddle-cpu:dev"
LABELS = REPOSITORY / "docs" / "reference" / "labels-and-environment.md"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


@cache
def blocks(*languages: str) -> list[Block]:
    parser = MarkdownIt("commonmark")
    return [
        Block(page, token.map[0] + 1, language, token.content)
        for page in pages(REPOSITORY)
        for token in parser.parse(page.read_text())
        if token.type == "fence" and token.map and (language := token.info.partition(" ")[0]) in languages
    ]


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything with a kind, on pages and below `examples`, and where it is."""
    texts = [(str(block), block.text) for block in blocks("yaml")]
    texts += [(path.name, path.read_text()) for path in (REPOSITORY / "examples").rglob("*.yaml")]
    for where, text in texts:
        for document in yaml.load_all(text, yaml.CSafeLoader):
            if isinstance(document, dict) and "kind" in document:
                yield where, document


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """The specs of all PaddleJobs, those of triggers too."""
    for where, manifest in manifests():
        if manifest["kind"] == "PaddleJob":
            yield where, manifest["spec"]
        if template := manifest.get("spec", {}).get("create", {}).get("paddleJob"):
            yield where, template["spec"]


def commands() -> list[tuple[str, str]]:
    """Every shell command that a page shows, without its prompt."""
    return [
        (str(block), line.removeprefix("$ "))
        for block in blocks("console", "bash", "text")
        for line in map(str.strip, block.text.replace("\\\n", " ").splitlines())
        if line.startswith(("$ ", "cp ", "make ", "helm ", "kubectl ", "paddlewheel "))
    ]


def programs(command: str) -> Iterator[list[str]]:
    """The simple commands of a command line, those in `$(...)` too."""
    words: list[str] = []
    splitter = shlex.shlex(
        command.replace("$(", " ; ").replace(")", " ; "), posix=True, punctuation_chars=";|&"
    )
    splitter.whitespace_split = True
    splitter.commenters = "#"
    for word in [*splitter, ";"]:
        if set(word) <= set(";|&"):
            if words:
                yield words
            words = []
        else:
            words.append(word)


def test_every_manifest_is_valid() -> None:
    for where, manifest in manifests():
        kind = OURS.get((manifest["apiVersion"], manifest["kind"]))
        assert kind or manifest["kind"] not in {name for _, name in OURS}, where
        if kind:
            assert find_violations(kind, parse_subject(kind, manifest)) == (), where


def test_scripts_that_jobs_run_are_mounted_since_the_image_has_none() -> None:
    for where, spec in jobs():
        pod = spec["worker"]["template"]["spec"]
        container = pod["containers"][0]
        if container["image"] != IMAGE:
            continue
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        scripts = [word for word in container.get("command", ()) if word.endswith(".py")]
        assert all(any(Path(script).is_relative_to(path) for path in mounts) for script in scripts), where


def test_config_maps_that_jobs_mount_are_made_by_an_example() -> None:
    made = {
        generator["name"]
        for path in (REPOSITORY / "examples").rglob("kustomization.yaml")
        for generator in yaml.safe_load(path.read_text())["configMapGenerator"]
    }
    mounted = {
        volume["configMap"]["name"]
        for _, spec in jobs()
        for volume in spec["worker"]["template"]["spec"].get("volumes", ())
        if "configMap" in volume
    }
    assert mounted <= made


def test_console_blocks_hold_commands_of_one_line_each() -> None:
    lines = [(str(block), line) for block in blocks("console") for line in block.text.splitlines()]
    assert len(lines) > 50
    assert [line for line in lines if not line[1].startswith("$ ") or line[1].endswith("\\")] == []
    for where, line in lines:
        checked = subprocess.run(["bash", "-n"], input=line[2:], text=True, capture_output=True, check=False)
        assert checked.stderr == "", where


def test_commands_of_paddlewheel_exist_with_their_options() -> None:
    root: Any = typer.main.get_command(app)
    for where, command in commands():
        for program, *arguments in programs(command):
            if Path(program).name != "paddlewheel":
                continue
            found: Any = root
            # A job runs the command after `--`.
            arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
            words = [word for word in arguments if not word.startswith("-")]
            while hasattr(found, "list_commands"):
                word = words.pop(0).partition("|")[0] if words else ""
                found = load(word) if found is root and word in COMMANDS else found.get_command(None, word)
            assert found, f"{where}: {command}"
            known = {
                "--help",
                *(name for param in found.params for name in (*param.opts, *param.secondary_opts)),
            }
            options = {word.partition("=")[0] for word in arguments if word.startswith("-")}
            assert options <= known, f"{where}: {command}"


def test_files_named_in_commands_exist() -> None:
    for where, command in commands():
        for name in re.findall(r"(?<![\w/.-])(?:examples|deploy|docs|libs)/[\w./-]+", command):
            assert (REPOSITORY / name).exists(), f"{where}: {name}"


def test_dockerfiles_of_pages_copy_files_that_exist_beside_them_or_that_the_page_copies() -> None:
    for block in blocks("dockerfile"):
        shown = block.page.read_text()
        title = re.search(rf'^```dockerfile title="(.+)"\n{re.escape(block.text)}', shown, re.MULTILINE)
        assert title, f"{block}: show a file of the repository, whose name is the title"
        copied = {
            Path(word).name
            for where, command in commands()
            if where.startswith(f"{block.page.relative_to(REPOSITORY)}:") and command.startswith("cp ")
            for word in command.split()[1:-1]
        }
        for line in block.text.splitlines():
            if line.startswith("COPY "):
                for source in line.split()[1:-1]:
                    beside = REPOSITORY / Path(title[1]).parent / source
                    assert beside.exists() or source in copied, f"{block}: {source}"


def test_make_targets_named_in_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for where, command in commands():
        for program, *arguments in programs(command):
            if program == "make":
                assert {word for word in arguments if "=" not in word} <= targets, where


def test_python_blocks_parse() -> None:
    for block in blocks("python"):
        ast.parse(block.text, filename=str(block))


def test_a_file_that_a_page_shows_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("new\n")
    page = 'Text.\n\n```python title="a.py"\nold\n\nold\n```\n\n```python\nown\n```\n'

    assert with_files(tmp_path, page) == page.replace("old\n\nold\n", "new\n")
    with pytest.raises(DocsError, match=r'title="b\.py": no such file'):
        with_files(tmp_path, page.replace("a.py", "b.py"))


def test_every_variable_of_a_jobs_containers_is_documented() -> None:
    domain = REPOSITORY / "services/job-controller/src/job_controller/core"
    source = "".join((domain / file).read_text() for file in ("environment.py", "names.py"))
    families = "PADDLE|PADDLEWHEEL|TRAINER|TRAINING|POD|STAGE|HETER_DEVICE"
    lists = {name for names in ENDPOINT_VARIABLES.values() for name in names}
    variables = lists.union(re.findall(rf'"((?:{families})_[A-Z_]+)"', source))

    table = LABELS.read_text().partition("## Environment")[2].partition("## Data sets")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == variables


def test_every_label_and_annotation_of_jobs_and_triggers_is_documented() -> None:
    names = {
        value
        for module in (job_names, trigger_names)
        for name, value in vars(module).items()
        if name.startswith(("LABEL_", "ANNOTATION_", "FINALIZER"))
    }
    assert {name for name in names if f"`{name}`" not in LABELS.read_text()} == set()
