"""Rules: once in CEL and once in Python, with one text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paddlewheel.contracts.crds import PADDLE_JOB, PUBLISHED_KINDS, SAMPLE_JOB, SAMPLE_SET, Kind
from paddlewheel.contracts.crds.admission import REFUSALS, WARNINGS
from paddlewheel.contracts.crds.admission_rules import CLEAN_POD_POLICY, INTRANET, AdmissionRule
from paddlewheel.contracts.crds.base import RULES, Rule
from paddlewheel.contracts.crds.parse import parse_paddle_job_spec, parse_subject
from paddlewheel.contracts.crds.violations import Subject, find_violations

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "x"}]}}


def rules_in(node: Any) -> Iterator[Any]:
    """Every rule below a model or a keyword dictionary."""
    for field in node.model_fields.values():
        extra = field.json_schema_extra
        yield from extra.get(RULES, ()) if isinstance(extra, dict) else ()
    extra = node.model_config.get("json_schema_extra") or {}
    yield from extra.get(RULES, ())


def violations(kind: Kind, spec: dict[str, Any], name: str = "x") -> list[str]:
    obj = {"metadata": {"name": name, "namespace": "team-a"}, "spec": spec}
    return [str(v) for v in find_violations(kind, parse_subject(kind, obj))]


def test_an_object_without_spec_lacks_it() -> None:
    subject = parse_subject(PADDLE_JOB, {"metadata": {"name": "x"}})
    assert [str(v) for v in find_violations(PADDLE_JOB, subject)] == [
        "spec: spec is required: add spec.worker with replicas and a template"
    ]


@pytest.mark.parametrize("kind", PUBLISHED_KINDS, ids=lambda kind: kind.kind)
def test_every_rule_of_a_kind_that_a_service_reads_has_its_verdict_in_python(kind: Kind) -> None:
    rules = [*kind.rules, *rules_in(kind.spec)]
    assert rules
    assert all(isinstance(rule, Rule) and rule.holds for rule in rules)


def test_violations_name_the_path_and_the_remedy() -> None:
    spec = {
        "worker": {"replicas": -1, "template": TEMPLATE},
        "ps": {"template": {"spec": {}}},
        "sampleSetRef": {"name": "", "mountPath": "/a:b"},
    }
    assert violations(PADDLE_JOB, spec) == [
        "spec.sampleSetRef.name: must have at least 1 characters",
        "spec.sampleSetRef.mountPath: mountPath must not contain ':': use a plain path such as /data",
        "spec.ps.replicas: replicas is required: set the number of pods of this role",
        "spec.ps.template.spec.containers: template.spec.containers is required: give the role a pod template"
        " with at least one container",
        "spec.worker.replicas: must be at least 0, is -1",
    ]


def test_items_of_lists_are_named_by_index() -> None:
    spec = {
        "type": "rmr",
        "sampleSetRef": {"name": "s"},
        "rmrOptions": {"paths": ["a", "..", "/"]},
    }
    assert [v.split(": ")[0] for v in violations(SAMPLE_JOB, spec)] == [
        "spec.rmrOptions.paths[1]",
        "spec.rmrOptions.paths[1]",
        "spec.rmrOptions.paths[2]",
    ]


def test_a_field_that_is_absent_violates_nothing_but_that_it_is_required() -> None:
    assert violations(SAMPLE_SET, {"partitions": 1, "secretRef": {"name": "engine"}, "cache": {}}) == []
    assert [v.split(":")[0] for v in violations(SAMPLE_SET, {})] == ["spec.partitions", "spec.secretRef"]


def test_the_end_of_a_text_is_not_before_a_last_newline() -> None:
    """`$` of Python would find `..` at the end of "a/..\\n", which RE2 does not."""
    spec = {"type": "warmup", "sampleSetRef": {"name": "s"}, "warmupOptions": {"paths": ["a/..\n"]}}
    assert violations(SAMPLE_JOB, spec) == []


def test_a_message_contains_the_values_of_the_object() -> None:
    rule = AdmissionRule("true", "spec.withGloo {spec.withGloo} isn't 0: '{spec.intranet}'")
    spec = parse_paddle_job_spec({"spec": {"withGloo": 3, "intranet": "Pod"}})
    assert rule.text(Subject("x", "default", spec)) == "spec.withGloo 3 isn't 0: 'Pod'"
    assert rule.message_expression == (
        "'spec.withGloo ' + string(object.spec.withGloo) + ' isn\\'t 0: \\'' + string(object.spec.intranet)"
        " + '\\''"
    )


@pytest.mark.parametrize("word", [CLEAN_POD_POLICY, INTRANET])
def test_known_words_are_no_reason_to_warn(word: Any) -> None:
    for value in ("", *word.words):
        spec = parse_paddle_job_spec({"spec": {word.field: value}})
        assert not word.rule.is_true_of(Subject("x", "default", spec))
    odd = Subject("x", "default", parse_paddle_job_spec({"spec": {word.field: "Odd"}}))
    assert word.rule.is_true_of(odd)
    assert word.rule.text(odd).startswith(f"spec.{word.field} Odd is none of {word.words[0]}, ")


def test_every_rule_is_in_one_table() -> None:
    texts = [rule.message for _, rules in (*WARNINGS, *REFUSALS) for rule in rules]
    assert len(texts) == len(set(texts))


def test_what_is_wrong_in_a_list_of_rules_is_named_with_its_place() -> None:
    role = {"replicas": 1, "template": TEMPLATE}
    rules = [{"action": "Restart"}, {"action": "Explode", "exitCodes": [1, 0]}, {}]
    assert violations(PADDLE_JOB, {"worker": role, "failurePolicy": {"rules": rules}}) == [
        "spec.failurePolicy.rules[1].action: must be one of ['Restart', 'Ignore', 'Fail'], is 'Explode'",
        "spec.failurePolicy.rules[1].exitCodes[1]: must be at least 1, is 0",
        "spec.failurePolicy.rules[2].action: action is required: Restart, Ignore (restart, but do not count)"
        " or Fail",
    ]


@pytest.mark.parametrize("allowed", ["delete-dst", "delete-src"])
def test_a_sync_deletes_on_one_side_only(allowed: str) -> None:
    job = {"type": "sync", "sampleSetRef": {"name": "s"}, "secretRef": {"name": "keys"}}
    assert violations(SAMPLE_JOB, {**job, "syncOptions": {allowed: True}}) == []
    assert violations(SAMPLE_JOB, {**job, "syncOptions": {"delete-dst": True, "delete-src": True}}) == [
        "spec.syncOptions: delete-dst and delete-src cannot be combined:"
        " sync with delete-dst first, then with delete-src"
    ]
