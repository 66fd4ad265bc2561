"""Rules beyond the CRDs' schemas: warnings about fields that work but mislead, and one refusal.

A warning never stops a manifest: an unknown policy word keeps the meaning it had in the original operator.
The refusal is here because CEL in a CRD cannot read the object's namespace. Each rule and its text are
written once: `admission` renders the admission policies from them, and services show the same text in
conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddlewheel.contracts.crds.base import CrdModel, found, is_given, names_by_alias
from paddlewheel.contracts.crds.operations import OPERATIONS, Operation
from paddlewheel.contracts.crds.paddlejob import ROLES, WORKER, Network, PaddleJobSpec
from paddlewheel.contracts.crds.samplejob import SampleJobSpec
from paddlewheel.contracts.crds.violations import Subject

SPEC = "object.spec"
_PLACEHOLDER = re.compile(r"{spec([.\w]+)}")


@dataclass(frozen=True)
class AdmissionRule:
    """A condition on an object, and the sentence that the user reads when the condition is true.

    Attributes:
        when: CEL over `object` and `oldObject` (null on creation).
        message: names the field, its effect and what to do; `{spec.field}` is replaced by the value.
        applies: `when` in Python; None = the rule reads the status or the old object, so only the API server
            can evaluate it.
    """

    when: str
    message: str
    applies: Callable[[Subject], bool] | None = None

    @property
    def message_expression(self) -> str:
        """A CEL expression that returns the message."""
        parts = _PLACEHOLDER.split(self.message)
        parts[::2] = [_literal(text) for text in parts[::2]]
        parts[1::2] = [f"string({SPEC}{path})" for path in parts[1::2]]
        return " + ".join(part for part in parts if part != _literal(""))

    def is_true_of(self, subject: Subject) -> bool:
        """Whether the rule applies; false if only the API server can evaluate it."""
        return self.applies is not None and self.applies(subject)

    def text(self, subject: Subject) -> str:
        """The message with the values of one object."""
        return _PLACEHOLDER.sub(lambda match: str(_value(subject.spec, match[1])), self.message)


@dataclass(frozen=True)
class PolicyWord:
    """A field that also accepts unknown words. An unknown word has the meaning of one of `words`."""

    field: str
    words: tuple[str, ...]
    meaning: str

    @property
    def rule(self) -> AdmissionRule:
        listed = ", ".join(f"'{word}'" for word in self.words)
        return AdmissionRule(
            f"has({SPEC}.{self.field}) && !({SPEC}.{self.field} in ['', {listed}])",
            f"spec.{self.field} {{spec.{self.field}}} is none of {', '.join(self.words)}: {self.meaning}",
            lambda subject: _value(subject.spec, f".{self.field}") not in ("", *self.words),
        )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


def _value(spec: CrdModel, path: str) -> Any:
    """The value at a path of JSON names, e.g. `.sampleSetRef.mountPath`."""
    value: Any = spec
    for alias in path.removeprefix(".").split("."):
        value = getattr(value, names_by_alias(value.__class__)[alias])
    return value


CLEAN_POD_POLICY = PolicyWord(
    "cleanPodPolicy",
    ("Always", "Never", "OnFailure", "OnCompletion"),
    "it means Never, so the pods are kept; use one of these words",
)
INTRANET = PolicyWord("intranet", tuple(Network), "it means PodIP; use one of these words")


def _replicas(role: str) -> str:
    at = f"{SPEC}.{role}"
    return f"(has({at}) && has({at}.replicas) ? {at}.replicas : 0)"


_ALL_REPLICAS = " + ".join(_replicas(role) for role in ROLES)


def _sum(spec: PaddleJobSpec) -> int:
    return sum(role.replicas for role in spec.roles.values())


def _min_available(spec: PaddleJobSpec) -> int | None:
    return spec.scheduling_policy.min_available if spec.scheduling_policy else None


def _has_relative_mount(spec: PaddleJobSpec) -> bool:
    ref = spec.sample_set_ref
    return ref is not None and is_given(ref, "mountPath") and not ref.mount_path.startswith("/")


def _has(spec: PaddleJobSpec, role: str, field: str) -> bool:
    given = spec.roles.get(role)
    return given is not None and is_given(given, field)


def _unused_limits(role: str) -> AdmissionRule:
    at, name = f"{SPEC}.{role}", f"spec.{role}"
    return AdmissionRule(
        f"has({at}) && has({at}.limits)",
        f"{name}.limits has no effect: the role never has more pods than {name}.replicas; remove it",
        lambda subject: _has(subject.spec, role, "limits"),
    )


def _unused_requests(role: str) -> AdmissionRule:
    """The rule for a role that always runs with all of its replicas."""
    at, name = f"{SPEC}.{role}", f"spec.{role}"
    return AdmissionRule(
        f"has({at}) && has({at}.requests)",
        f"{name}.requests has no effect: only the number of workers can shrink, never the number of pods of"
        " another role; remove it",
        lambda subject: _has(subject.spec, role, "requests"),
    )


def _is_above_replicas(spec: PaddleJobSpec) -> bool:
    worker = spec.worker
    return worker is not None and is_given(worker, "replicas") and (worker.requests or 0) > worker.replicas


_WORKER = f"{SPEC}.worker"
_REQUESTS_ABOVE_REPLICAS = AdmissionRule(
    f"has({_WORKER}) && has({_WORKER}.replicas) && has({_WORKER}.requests)"
    f" && {_WORKER}.requests > {_WORKER}.replicas",
    "spec.worker.requests is above spec.worker.replicas, so it has no effect: it is the smallest number of"
    " workers that the job can train with; lower it or remove it",
    lambda subject: _is_above_replicas(subject.spec),
)


def _own_restart_policy(spec: PaddleJobSpec, role: str) -> str:
    """The template's `restartPolicy`, or "" for elastic jobs, whose pods always get OnFailure."""
    given = spec.roles.get(role)
    template = (given.template if given else None) or {}
    return "" if spec.elastic else str((template.get("spec") or {}).get("restartPolicy") or "")


def _has_own_policy(role: str, words: str) -> str:
    at = f"{SPEC}.?{role}.?template.?spec.?restartPolicy.orValue('')"
    return f"{at} in [{words}] && {SPEC}.?elastic.orValue(0) == 0"


def _restarts_in_place(role: str) -> AdmissionRule:
    has_policy = _has_own_policy(role, "'OnFailure', 'Always'")
    return AdmissionRule(
        f"{has_policy} && (has({SPEC}.backoffLimit) || has({SPEC}.failurePolicy))",
        f"spec.{role}.template.spec.restartPolicy restarts failed containers in place: these restarts count"
        " against spec.backoffLimit, and the rules of spec.failurePolicy do not apply to them;"
        " remove the field or set Never",
        lambda subject: (
            _own_restart_policy(subject.spec, role) in ("OnFailure", "Always")
            and (subject.spec.backoff_limit is not None or subject.spec.failure_policy is not None)
        ),
    )


WORKERS_NEVER_COMPLETE = AdmissionRule(
    _has_own_policy("worker", "'Always'"),
    "spec.worker.template.spec.restartPolicy Always restarts a program that has exited with 0, so the job"
    " never completes; set OnFailure or Never",
    lambda subject: _own_restart_policy(subject.spec, "worker") == "Always",
)

NO_PODS = AdmissionRule(
    f"{_ALL_REPLICAS} == 0",
    "spec requests no pods: every role has replicas 0; raise spec.worker.replicas to run the job",
    lambda subject: _sum(subject.spec) == 0,
)

PADDLE_JOB_WARNINGS = (
    CLEAN_POD_POLICY.rule,
    INTRANET.rule,
    AdmissionRule(
        f"has({SPEC}.elastic) && {SPEC}.elastic == 0",
        "spec.elastic 0 leaves elastic training off, where the original operator switched it on:"
        " set 1 for elastic training or remove the field",
        lambda subject: subject.spec.elastic == 0,
    ),
    AdmissionRule(
        f"has({SPEC}.withGloo) && ({SPEC}.withGloo < 0 || {SPEC}.withGloo > 2)",
        "spec.withGloo {spec.withGloo} is none of 0 (off), 1 (workers), 2 (workers and servers):"
        " a number below 0 means off, a number above 2 is passed to the program unchanged",
        lambda subject: not 0 <= (subject.spec.with_gloo or 0) <= 2,
    ),
    AdmissionRule(
        f"has({SPEC}.schedulingPolicy) && has({SPEC}.schedulingPolicy.minAvailable)"
        f" && {SPEC}.schedulingPolicy.minAvailable > {_ALL_REPLICAS}",
        "spec.schedulingPolicy.minAvailable is more than all replicas together:"
        " a gang scheduler would never start the job; lower it",
        lambda subject: (least := _min_available(subject.spec)) is not None and least > _sum(subject.spec),
    ),
    NO_PODS,
    AdmissionRule(
        f"has({SPEC}.sampleSetRef) && has({SPEC}.sampleSetRef.mountPath)"
        f" && !{SPEC}.sampleSetRef.mountPath.startsWith('/')",
        "spec.sampleSetRef.mountPath {spec.sampleSetRef.mountPath} is relative: it means"
        " /{spec.sampleSetRef.mountPath}; write that instead",
        lambda subject: _has_relative_mount(subject.spec),
    ),
    *(_unused_limits(role) for role in ROLES),
    *(_unused_requests(role) for role in ROLES if role != WORKER),
    _REQUESTS_ABOVE_REPLICAS,
    *(_restarts_in_place(role) for role in ROLES),
    WORKERS_NEVER_COMPLETE,
)

FOREIGN_SAMPLE_SET = AdmissionRule(
    f"has({SPEC}.sampleSetRef) && has({SPEC}.sampleSetRef.namespace)"
    f" && !({SPEC}.sampleSetRef.namespace in ['', request.namespace])",
    "spec.sampleSetRef.namespace {spec.sampleSetRef.namespace} is another namespace: the claim of a SampleSet"
    " can be mounted in its own namespace only; remove the field and run the job there",
    lambda subject: (
        subject.spec.sample_set_ref is not None
        and subject.spec.sample_set_ref.namespace not in ("", subject.namespace)
    ),
)

PADDLE_JOB_REFUSALS = (FOREIGN_SAMPLE_SET,)

_BOUND = (
    "oldObject != null && has(object.status) && has(object.status.phase)"
    " && !(object.status.phase in ['', 'NotBound'])"
)
_SYNCED = f"{_BOUND} && object.status.phase in ['PartialReady', 'Ready']"


def _settled(field: str, since: str, when: str) -> AdmissionRule:
    now, before = f"{SPEC}.?{field}", f"oldObject.spec.?{field}"
    return AdmissionRule(
        f"{when} && {now} != {before}",
        f"spec.{field} is not meant to change once the set is {since}:"
        " delete the set and create it again for the change to take full effect",
    )


_CREDENTIALS = "^[a-z0-9]+://([^/]*@|[^/@:[]*:[0-9]*[^0-9/,?#])"
"""Matches an address with credentials, even if these contain a '/': text after the ':' that is not a port."""

NO_SOURCE = AdmissionRule(
    f"!(has({SPEC}.noSync) && {SPEC}.noSync) && !(has({SPEC}.source) && has({SPEC}.source.uri))",
    "spec.source.uri is absent, so there is nothing to sync and the set stops at phase Mount:"
    " set it, or set spec.noSync true when the data is in the engine already",
    lambda subject: (
        not subject.spec.no_sync and (subject.spec.source is None or not is_given(subject.spec.source, "uri"))
    ),
)

SAMPLE_SET_WARNINGS = (
    NO_SOURCE,
    AdmissionRule(
        f"has({SPEC}.source) && has({SPEC}.source.uri) && {SPEC}.source.uri.matches('{_CREDENTIALS}')",
        "spec.source.uri contains credentials, which all users with access to the object can read: use"
        " spec.source.secretRef",
        lambda subject: subject.spec.source is not None and found(_CREDENTIALS, subject.spec.source.uri),
    ),
    *(_settled(f, "bound", _BOUND) for f in ("secretRef", "csi", "cache", "nodeAffinity", "tolerations")),
    _settled("source", "synced", _SYNCED),
    AdmissionRule(
        f"{_SYNCED} && oldObject.spec.?noSync.orValue(false) && !{SPEC}.?noSync.orValue(false)",
        "removing spec.noSync copies nothing after the set has skipped the first sync:"
        " create a SampleJob of type sync",
    ),
)


def _foreign_options(operation: Operation) -> AdmissionRule:
    options = operation.options_field
    return AdmissionRule(
        f"has({SPEC}.type) && {SPEC}.type != '{operation.word}' && has({SPEC}.{options})",
        f"spec.{options} has no effect with spec.type {{spec.type}}",
        lambda subject: (
            is_given(subject.spec, "type")
            and subject.spec.type != operation.word
            and is_given(subject.spec, options)
        ),
    )


def _wildcards(field: str) -> AdmissionRule:
    options = field.partition(".")[0]
    return AdmissionRule(
        f"has({SPEC}.{options}) && has({SPEC}.{field}) && {SPEC}.{field}.exists(p, p.contains('*'))",
        f"spec.{field} is taken literally: '*' is an ordinary character, not a pattern",
        lambda subject: (
            is_given(subject.spec, options) and any("*" in path for path in _value(subject.spec, f".{field}"))
        ),
    )


WITHOUT_EFFECT = ("manager", "worker")
"""Sync options that are accepted and ignored. The original operator used them to distribute a sync over
SSH."""


def _has_unused_options(spec: SampleJobSpec) -> bool:
    options = spec.sync_options
    return options is not None and any(is_given(options, name) for name in WITHOUT_EFFECT)


SAMPLE_JOB_WARNINGS = (
    *(_foreign_options(operation) for operation in OPERATIONS),
    *(_wildcards(field) for field in ("warmupOptions.paths", "rmrOptions.paths")),
    AdmissionRule(
        f"has({SPEC}.syncOptions) && ({' || '.join(f'has({SPEC}.syncOptions.{n})' for n in WITHOUT_EFFECT)})",
        f"spec.syncOptions.{' and '.join(WITHOUT_EFFECT)} have no effect:"
        " every node of the set takes part in a sync",
        lambda subject: _has_unused_options(subject.spec),
    ),
    AdmissionRule(
        f"has({SPEC}.syncOptions) && has({SPEC}.syncOptions.bwlimit) && {SPEC}.syncOptions.bwlimit < 0",
        "spec.syncOptions.bwlimit below 0 means no limit; write 0",
    ),
    AdmissionRule(
        f"has({SPEC}.syncOptions) && has({SPEC}.syncOptions.source)"
        f" && {SPEC}.syncOptions.source.matches('{_CREDENTIALS}')",
        "spec.syncOptions.source contains credentials, which all users with access to the object can read:"
        " use spec.secretRef",
        lambda subject: (
            subject.spec.sync_options is not None and found(_CREDENTIALS, subject.spec.sync_options.source)
        ),
    ),
    AdmissionRule(
        "oldObject != null && has(object.status) && has(object.status.phase)"
        " && object.status.phase == 'Succeeded' && object.spec != oldObject.spec",
        "the job has succeeded: editing its spec has no effect, except for ttlSecondsAfterFinished;"
        " create a new SampleJob",
    ),
)
