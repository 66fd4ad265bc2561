"""The lint for plain English refuses what the style guide names, and leaves ordinary English alone."""

from __future__ import annotations

import pytest
from tests.english.__main__ import Checked, check_file, complaints, defined_twice, read_allowed, shrunk
from tests.english.rules import (
    Finding,
    comment_findings,
    markdown_findings,
    python_findings,
)


def _found(source: str, *, product: bool = True) -> list[tuple[int, str]]:
    return [(line, text) for line, text, _ in python_findings(source, product=product)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Of the job, and nothing else."""', [(1, "Of")]),
        ('"""A sentence. Of several delays the earliest counts."""', [(1, "Of")]),
        ('"""As on a bus without streams."""', [(1, "As")]),
        ('"""Read it.\n\n    Args:\n        name: of the job.\n"""', [(4, "of")]),
        ("# As services do.\nX = {}", [(1, "As")]),
        ("x = 1  # whoever asks", [(1, "whoever")]),
        ("# The first line.\n    # Whoever asks.", [(2, "Whoever")]),
        ('"""What a watch needs."""', [(1, "What")]),
        ('"""A table.\n\nWhat the bus says."""', [(3, "says")]),
        ('"""By partition."""', [(1, "By")]),
        ('"""Where the client mounts; what is there is shown at `path`."""', [(1, "Where")]),
        ('raise Permanent("Lost", "nothing was heard of it")', [(1, "heard")]),
        ('raise Permanent(f"the set lacks {name}")', [(1, "lacks")]),
        ('"""Those that are left."""', [(1, "Those that"), (1, "Those")]),
        ('"""The service stands on the bus."""', [(1, "stands")]),
        ("# No word of it.\n", [(1, "No word")]),
        ('"""Skips all but\n    the last."""', [(1, "all but")]),
        ("PATIENCE = 10.0\n", [(1, "PATIENCE")]),
        ('SWEEP: Final = 60\n"""Seconds between two sweeps."""\n', [(1, "SWEEP")]),
        ("# Seconds without a byte.\nMUTE = 150.0\n", [(2, "MUTE")]),
        ("SKEW = timedelta(seconds=5)\n", [(1, "SKEW")]),
        ("CALL_TIMEOUT = 2 * 7.5\n", [(1, "CALL_TIMEOUT")]),
    ],
)
def test_refuses(source: str, found: list[tuple[int, str]]) -> None:
    assert sorted(_found(source)) == sorted(found)


@pytest.mark.parametrize(
    "source",
    [
        '"""The last lines of a log, as a text."""',
        '"""As soon as a worker is free, hand out the key. As long as it works, keep it. Of course."""',
        '"""The number that stands for a missing one; one word of the line, a keyword or a password."""',
        '"""Read `told` and ``says``; see https://example.org/told."""',
        '"""In a gang, each pod waits. At least one pod runs."""',
        "# By partition.\n",
        '"""Torn down after the test."""',
        'TELLS = "told"\nfield.says("x")',
        'x = "a # in a text", r"it says so \\d"',
        'raise Permanent(f"{whoever} does not exist here")',
        "CALL_TIMEOUT_SECONDS = 15.0\n",
        '_POLL_INTERVAL_SECONDS = 0.5\n"""Seconds between two reads."""\n',
        "HELD_OUT = 5\nRATIO = 0.5\n",
        "LATENCY_BUCKETS = (0.1, 1.0)\n" + '"""Seconds."""\n',
        "def f() -> None:\n    POLL = 0.5\n",
    ],
)
def test_leaves_alone(source: str) -> None:
    assert _found(source) == []


def test_texts_of_tests_are_data() -> None:
    assert _found('send("what the bus has told us")', product=False) == []


def test_pages_are_prose_outside_of_code() -> None:
    page = (
        "# Words\n\n```text\nit says so\n```\n\n- Of the job\n\nIt `says` what the [page](told.md) tells.\n"
    )
    assert [(line, text) for line, text, _ in markdown_findings(page)] == [(9, "tells"), (7, "Of")]


def test_comments_of_other_languages_are_prose() -> None:
    assert [
        f.line for f in comment_findings("a: 1\n  # One line,\n  # which says so.\n// Whoever\nb: told\n")
    ] == [3, 4]


def test_same_time_twice_is_refused_where_it_can_be_imported() -> None:
    time = [(3, "CALL_TIMEOUT_SECONDS", "5.0")]
    files = [
        Checked("services/one/a.py", [], [(1, "POLL_INTERVAL_SECONDS", "1.0")]),
        Checked("services/two/a.py", [], [(1, "POLL_INTERVAL_SECONDS", "1.0")]),
        Checked("libs/kube/a.py", [], time),
        Checked("services/one/b.py", [], time),
        Checked("services/one/c.py", [], [(3, "CALL_TIMEOUT_SECONDS", "9.0")]),
    ]
    assert defined_twice(files) == {
        "services/one/b.py": [Finding(3, "CALL_TIMEOUT_SECONDS", "import it from libs/kube/a.py")]
    }


FOUND = {"a.py": [Finding(1, "told", "reports")] * 2, "new.py": [Finding(7, "anew", "again")]}


def test_more_than_allowed_is_refused_with_places() -> None:
    assert complaints(FOUND, {"a.py": 1}) == [
        "a.py:1: told -> reports",
        "a.py:1: told -> reports",
        "a.py: 2 findings, 1 allowed",
        "new.py:7: anew -> again",
        "new.py: 1 findings, 0 allowed",
    ]


def test_fewer_than_allowed_is_refused_until_the_list_is_updated() -> None:
    (line,) = complaints({}, {"a.py": 1})
    assert line.startswith("a.py: 0 findings, 1 allowed: run `")
    assert line.endswith(" --update`")


def test_update_only_lowers() -> None:
    assert shrunk(FOUND, {"a.py": 1, "b.py": 4}) == {"a.py": 1}
    assert shrunk(FOUND, {"a.py": 5}) == {"a.py": 2}


def test_allowed_is_path_and_number() -> None:
    assert read_allowed("a b.py 3\nc.md 1\n") == {"a b.py": 3, "c.md": 1}


def test_generated_files_are_left_to_their_source() -> None:
    assert check_file("docs/reference/commands.md").findings == []
