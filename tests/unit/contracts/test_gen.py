"""The generator refuses what it would get wrong, naming the field."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from paddlewheel.contracts.gen import models, page, registry
from paddlewheel.contracts.gen.__main__ import settle
from paddlewheel.contracts.gen.catalog import Catalog

F = FieldDescriptorProto


def make_file(*fields: F, nested: DescriptorProto | None = None) -> FileDescriptorProto:
    message = DescriptorProto(name="Thing", field=fields, nested_type=[nested] if nested else [])
    return FileDescriptorProto(name="t.proto", package="paddlewheel.tests.v1", message_type=[message])


def make_field(name: str, type_: F.Type.ValueType, **more: object) -> F:
    return F(name=name, type=type_, json_name=name, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        (make_file(make_field("ratio", F.TYPE_FLOAT)), "ratio: the generator knows no TYPE_FLOAT"),
        (
            make_file(make_field("wait", F.TYPE_MESSAGE, type_name=".google.protobuf.Duration")),
            "wait: the generator knows no TYPE_MESSAGE",
        ),
        (make_file(F(name="some_id", type=F.TYPE_STRING, json_name="ID")), "some_id: own JSON names"),
        (make_file(nested=DescriptorProto(name="Inner")), "declare nested messages"),
    ],
)
def test_unsupported_protos_are_refused(file: FileDescriptorProto, complaint: str) -> None:
    with pytest.raises(SystemExit, match=complaint):
        models.module_text(file, {})


def test_comments_become_docstrings_that_survive_quotes() -> None:
    file = make_file(make_field("name", F.TYPE_STRING))
    location = file.source_code_info.location.add(leading_comments=' Ends in a "quote"\n')
    location.path.extend([4, 0, 2, 0])
    text = models.module_text(file, {})
    compile(text, "generated", "exec")
    assert 'Ends in a "quote" """' in text


def make_facts(*names: str) -> FileDescriptorProto:
    return FileDescriptorProto(
        package="paddlewheel.tests.v1", message_type=[DescriptorProto(name=n) for n in names]
    )


def test_facts_are_an_entity_with_a_past_tense_behind_it() -> None:
    file = make_facts(
        "Thing", "ThingMade", "ThingSpec", "ThingState", "ThingStatus", "OtherMade", "SomethingMade"
    )
    assert registry.facts_in(file, ["Thing"]) == ["ThingMade"]


def test_two_files_of_one_package_are_refused() -> None:
    files = [make_facts("ThingMade"), make_facts("ThingLost")]
    with pytest.raises(SystemExit, match=r"paddlewheel\.tests\.v1: keep it in one file"):
        models.render(FileDescriptorSet(file=files))


def test_a_page_without_its_marker_is_refused() -> None:
    with pytest.raises(SystemExit, match="put this line"):
        page.with_reference("# Events\n", Catalog((), {}))


def test_what_is_written_by_hand_stays() -> None:
    text = page.with_reference(f"# By hand\n\n{page.MARKER}\nold\n", Catalog((), {}))
    assert text.startswith(f"# By hand\n\n{page.MARKER}\n")
    assert "old" not in text


def test_a_check_names_what_differs_and_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("1")
    (tmp_path / "old").write_text("1")
    (tmp_path / "gone").write_text("1")
    wanted = {tmp_path / "same": "1", tmp_path / "old": "2", tmp_path / "new": "1"}
    present = set(tmp_path.iterdir())
    differing = {tmp_path / name for name in ("old", "new", "gone")}
    assert settle(wanted, present, check=True) == differing
    assert set(tmp_path.iterdir()) == present
    assert settle(wanted, present, check=False) == differing
    assert {path: path.read_text() for path in tmp_path.iterdir()} == wanted
