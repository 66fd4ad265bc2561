"""The declared streams fit together, and patterns match as NATS matches."""

from __future__ import annotations

import pytest

from paddlewheel.bus.keys import check_key, check_pattern
from paddlewheel.bus.streams import (
    JOBS,
    STREAMS,
    WORK,
    Limits,
    enlarged,
    find_drift,
    matches,
    overlaps,
    stream_named,
    stream_of,
    streams_under,
)
from paddlewheel.contracts.events import EVENTS
from paddlewheel.contracts.subjects import dead_letter_subject, event_subject, work_subject
from paddlewheel.core.errors import Permanent

MATCHES = [
    ("a.b", "a.b", True),
    ("a.*", "a.b", True),
    ("a.*", "a.b.c", False),
    ("a.>", "a.b.c", True),
    ("a.>", "a", False),
    (">", "a", True),
    ("a.b", "a", False),
    ("a", "a.b", False),
    ("*.*", "a.b", True),
]


@pytest.mark.parametrize(("pattern", "subject", "answer"), MATCHES)
def test_matching(pattern: str, subject: str, answer: bool) -> None:
    assert matches(pattern, subject) is answer


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        ("pw.evt.jobs.>", "pw.evt.*.*.*.v1.*.*", True),
        ("pw.evt.jobs.>", "pw.evt.cache.>", False),
        ("pw.>", "pw.evt.cache.>", True),
        ("a.b", "a.b", True),
        ("a.b", "a.*", True),
        ("a.b", "a.b.c", False),
    ],
)
def test_overlapping(left: str, right: str, answer: bool) -> None:
    assert overlaps(left, right) is answer
    assert overlaps(right, left) is answer


def test_no_two_streams_take_the_same_subject() -> None:
    patterns = [(spec.name, pattern) for spec in STREAMS for pattern in spec.subjects]
    pairs = [(a, b) for a in patterns for b in patterns if a < b]
    assert [(a, b) for a, b in pairs if overlaps(a[1], b[1])] == []


def test_every_subject_we_build_has_a_stream() -> None:
    subjects = [event_subject(model, "ns", "u") for model in EVENTS.values()]
    subjects += [work_subject("s", "r", 0, 0), dead_letter_subject("d")]
    assert {stream_of(s).name for s in subjects} == {
        "PW_JOBS",
        "PW_PROGRESS",
        "PW_DATASETS",
        "PW_TRIGGERS",
        "PW_MODELS",
        "PW_SERVING",
        "PW_MEASUREMENTS",
        "PW_SOURCES",
        "PW_CACHE",
        "PW_CACHEPROGRESS",
        "PW_WORK",
        "PW_DLQ",
    }


def test_the_server_takes_every_declaration() -> None:
    assert [spec.name for spec in STREAMS if 0 < spec.max_age < spec.duplicate_window] == []


def test_unknown_streams_and_subjects_are_refused() -> None:
    with pytest.raises(Permanent, match="UnknownStream"):
        stream_named("PW_ELSE")
    with pytest.raises(Permanent, match="NoStream"):
        stream_of("pw.else")


def test_filters_are_grouped_by_stream() -> None:
    assert streams_under(("pw.evt.jobs.job.*.v1.*.*", "pw.work.>")) == {
        JOBS.name: ("pw.evt.jobs.job.*.v1.*.*",),
        WORK.name: ("pw.work.>",),
    }
    assert set(streams_under(("pw.evt.>",))) == {
        "PW_JOBS",
        "PW_PROGRESS",
        "PW_DATASETS",
        "PW_TRIGGERS",
        "PW_MODELS",
        "PW_SERVING",
        "PW_MEASUREMENTS",
        "PW_CACHE",
        "PW_CACHEPROGRESS",
    }


def test_drift_separates_correctable_from_fixed_fields() -> None:
    declared = {"max_age": 5.0, "retention": "limits", "max_bytes": 1}
    drift = find_drift(declared, {"max_age": 4.0, "retention": "workqueue", "max_bytes": 1, "other": 9})
    assert drift.correctable == {"max_age": (5.0, 4.0)}
    assert drift.fixed == {"retention": ("limits", "workqueue")}


@pytest.mark.parametrize(("declared", "found", "drifts"), [(3, 1, True), (3, 3, False), (1, 3, False)])
def test_more_replicas_than_declared_are_no_drift(declared: int, found: int, drifts: bool) -> None:
    drift = find_drift({"num_replicas": declared}, {"num_replicas": found})
    assert drift.correctable == ({"num_replicas": (declared, found)} if drifts else {})
    assert drift.fixed == {}


@pytest.mark.parametrize(
    ("declared", "found", "drifts"),
    [(5, 4, True), (5, 6, False), (5, 0, False), (5, -1, False), (0, 6, True)],
)
@pytest.mark.parametrize("field", ["max_age", "max_bytes"])
def test_what_an_operator_enlarged_is_no_drift(field: str, declared: int, found: int, drifts: bool) -> None:
    drift = find_drift({field: declared}, {field: found})
    assert drift.correctable == ({field: (declared, found)} if drifts else {})


def test_limits_are_raised_and_never_lowered() -> None:
    assert enlarged(JOBS, Limits()) == JOBS
    assert enlarged(JOBS, Limits(max_age=30 * 86400.0)).max_age == 30 * 86400.0
    with pytest.raises(Permanent, match="PW_JOBS: max_bytes=1 is too small: set at least"):
        enlarged(JOBS, Limits(max_bytes=1))


@pytest.mark.parametrize("key", ["a", "a.b", "set-1.run_2.part-0"])
def test_keys(key: str) -> None:
    assert check_key(key) == key
    assert check_pattern(key) == key


@pytest.mark.parametrize("pattern", [">", "*", "a.*", "*.*.state", "a.>"])
def test_patterns(pattern: str) -> None:
    assert check_pattern(pattern) == pattern
    with pytest.raises(Permanent, match="MalformedKey"):
        check_key(pattern)


@pytest.mark.parametrize("pattern", ["", "a..b", ">.a", "a.b*", "a b", "a.>.b", "ä"])
def test_nonsense_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(Permanent, match="MalformedKey"):
        check_pattern(pattern)
