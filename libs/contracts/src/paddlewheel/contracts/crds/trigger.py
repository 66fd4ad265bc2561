"""Trigger, events.paddlepaddle.org/v1alpha1: a fact, a change in an object store or a schedule creates a
job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from paddlewheel.contracts.announcements import Announcement, outstanding
from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.conditions import explain, render_conditions
from paddlewheel.contracts.crds.base import CrdModel, api_default, int32, needs, rule, rules, says
from paddlewheel.contracts.crds.common import CommonStatus
from paddlewheel.contracts.crds.limits import KEY_LENGTH
from paddlewheel.contracts.crds.paddlejob import PaddleJobSpec
from paddlewheel.contracts.crds.samplejob import SampleJobSpec
from paddlewheel.contracts.events import EVENTS
from paddlewheel.contracts.stamps import EPOCH

TRIGGER_NAME_LENGTH = 40
"""Characters of a Trigger's name, at most. Created objects are named `<trigger>-<digest>`, with 11 characters
more, which every kind accepts."""
NOTIFICATIONS = ("ObjectCreated", "ObjectRemoved")
POLICIES = ("Allow", "Forbid", "Replace")
_CONTEXTS = ("paddlewheel.jobs.", "paddlewheel.datasets.")
FACTS = tuple(sorted(t for t in EVENTS if t.startswith(_CONTEXTS) and not t.endswith("Progressed")))
"""Types of facts that a Trigger can follow. Progress is not one of them: messages of it may be lost."""

Time = Annotated[datetime, PlainSerializer(write_time)]


class FactObject(CrdModel):
    """The objects whose facts count. If both fields are set, an object must match both."""

    name: Annotated[str, says("Name of the object; default: any object of the trigger's namespace.")] = ""
    created_by: Annotated[
        str,
        says(
            "Name of the Trigger, in the same namespace, that created the object; default: created by any"
            " client."
        ),
    ] = ""


class FactSource(CrdModel):
    """A fact about an object in the trigger's namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(
                ".type",
                "when.fact.type is required: name a fact, e.g. paddlewheel.datasets.v1.SampleSetReady",
            )
        )
    )

    type: Annotated[
        str, says("Full name of the fact, e.g. paddlewheel.datasets.v1.SampleSetReady.", enum=list(FACTS))
    ] = ""
    object: Annotated[
        FactObject | None, says("Objects whose facts count; default: all objects of the trigger's namespace.")
    ] = None


SOURCE, SOURCE_LENGTH = r"^[A-Za-z0-9_-]+$", 63
"""Pattern and length of a source's name, which is one token of a subject on the bus."""


class ObjectStoreSource(CrdModel):
    """Changes in an object store, which notifies trigger-controller's webhook of them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".source", "when.objectStore.source is required: the last part of the webhook's address"),
            needs(".bucket", "when.objectStore.bucket is required: name the bucket to follow"),
        )
    )

    source: Annotated[
        str,
        says(
            "Name under which the store sends notifications: the last part of the webhook's address.",
            maxLength=SOURCE_LENGTH,
            pattern=SOURCE,
        ),
    ] = ""
    bucket: Annotated[str, says("Name of the bucket to follow.", minLength=1, maxLength=255)] = ""
    prefix: Annotated[
        str, says("Prefix of the keys that count, e.g. train/; default: all keys.", maxLength=KEY_LENGTH)
    ] = ""
    suffix: Annotated[
        str, says("Suffix of the keys that count, e.g. .jpg; default: all keys.", maxLength=KEY_LENGTH)
    ] = ""
    events: Annotated[
        tuple[Annotated[str, says("ObjectCreated or ObjectRemoved.", enum=list(NOTIFICATIONS))], ...],
        says(
            "Changes that count: ObjectCreated (an object was written, also an existing one), ObjectRemoved.",
            minItems=1,
            maxItems=len(NOTIFICATIONS),
            **api_default(["ObjectCreated"]),
        ),
    ] = ("ObjectCreated",)


CRON = r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[A-Za-z0-9*,/#-]+( [A-Za-z0-9*,/#-]+){4})$"
"""The form of a schedule: five fields, or a name. trigger-controller checks the values of the fields."""


class ScheduleSource(CrdModel):
    """A schedule, as in a CronJob."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".cron", "when.schedule.cron is required, e.g. '30 2 * * *' for 02:30 every day")
        )
    )

    cron: Annotated[
        str,
        says(
            "Schedule in cron's form: minute, hour, day of the month, month and day of the week, separated"
            " by single spaces, e.g. '30 2 * * *' for 02:30 every day; or @hourly, @daily, @weekly,"
            " @monthly, @yearly.",
            maxLength=128,
            pattern=CRON,
        ),
    ] = ""
    time_zone: Annotated[
        str,
        says(
            "Time zone of the schedule, e.g. Asia/Shanghai.",
            maxLength=64,
            pattern=r"^[A-Za-z0-9_+/-]+$",
            **api_default("UTC"),
        ),
    ] = "UTC"
    starting_deadline_seconds: Annotated[
        int | None,
        int32(
            "Seconds after a scheduled time in which a missed run may still start, e.g. after an outage."
            " Default: no limit, so the newest missed run starts late.",
            minimum=1,
        ),
    ] = None


class When(CrdModel):
    """The events that create jobs. Exactly one of the fields is set."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "[has(self.fact), has(self.objectStore), has(self.schedule)].filter(x, x).size() == 1",
                "when needs exactly one of fact, objectStore, schedule: keep one, or create several Triggers",
            )
        )
    )

    fact: Annotated[FactSource | None, says("A fact about a job or a data set.")] = None
    object_store: Annotated[ObjectStoreSource | None, says("A change in an object store.")] = None
    schedule: Annotated[ScheduleSource | None, says("A schedule, as in a CronJob.")] = None


class TemplateMetadata(CrdModel):
    """Metadata of the created object. Its name is `<trigger>-<digest of the event's id>`."""

    labels: Annotated[dict[str, str], says("Labels of the created object.")] = Field(default_factory=dict)
    annotations: Annotated[dict[str, str], says("Annotations of the created object.")] = Field(
        default_factory=dict
    )


class SampleJobTemplate(CrdModel):
    """A template of a SampleJob."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".spec", "sampleJob.spec is required: the operation to run, e.g. type: sync")
        )
    )

    metadata: Annotated[TemplateMetadata | None, says("Labels and annotations of the created SampleJob.")] = (
        None
    )
    spec: Annotated[
        SampleJobSpec | None,
        says(
            "Spec of the created SampleJob. Strings may contain names of the event's values, e.g."
            " $(event.id)."
        ),
    ] = None


class PaddleJobTemplate(CrdModel):
    """A template of a PaddleJob."""

    model_config = ConfigDict(
        json_schema_extra=rules(needs(".spec", "paddleJob.spec is required: the roles to run, e.g. worker"))
    )

    metadata: Annotated[TemplateMetadata | None, says("Labels and annotations of the created PaddleJob.")] = (
        None
    )
    spec: Annotated[
        PaddleJobSpec | None,
        says(
            "Spec of the created PaddleJob. Strings may contain names of the event's values, e.g."
            " $(event.id)."
        ),
    ] = None


class Create(CrdModel):
    """The object that is created in the trigger's namespace. Exactly one of the fields is set."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.sampleJob) != has(self.paddleJob)",
                "create needs exactly one of sampleJob and paddleJob: remove one, or create two Triggers",
            )
        )
    )

    sample_job: Annotated[SampleJobTemplate | None, says("A SampleJob: an operation on a data set.")] = None
    paddle_job: Annotated[PaddleJobTemplate | None, says("A PaddleJob: a training job.")] = None


class Batch(CrdModel):
    """One object for many events.

    Events are gathered until no more arrive for a while, or there are enough.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".quietSeconds", "batch.quietSeconds is required: the seconds without a new event, e.g. 30")
        )
    )

    quiet_seconds: Annotated[
        int,
        int32(
            "Seconds without a new event after which one object is created for the gathered events, e.g. 30.",
            minimum=1,
            maximum=86400,
        ),
    ] = 1
    max_events: Annotated[
        int,
        int32(
            "Number of gathered events at which the object is created without waiting longer; default, and"
            " 0: no limit.",
            minimum=0,
        ),
    ] = 0


class TriggerSpec(CrdModel):
    """The desired trigger: the events to follow, and the object to create."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".when", "spec.when is required: set when.fact, when.objectStore or when.schedule"),
            needs(".create", "spec.create is required: set create.sampleJob or create.paddleJob"),
            rule(
                "!(has(self.batch) && has(self.when) && has(self.when.schedule))",
                "spec.batch gathers events, but when.schedule has one event at a time: remove spec.batch",
            ),
        )
    )

    when: Annotated[When | None, says("Events that create an object.")] = None
    create: Annotated[Create | None, says("Object to create.")] = None
    suspend: Annotated[
        bool, says("If true, nothing is created, and events are skipped: they have no effect later either.")
    ] = False
    concurrency_policy: Annotated[
        str,
        says(
            "What happens to an event while a job of the trigger runs. Allow: another job is created beside"
            " it. Forbid: events are gathered, and one job is created for all of them when the job has"
            " ended. Replace: another job is created, and then the running one is deleted.",
            enum=list(POLICIES),
            **api_default("Allow"),
        ),
    ] = "Allow"
    batch: Annotated[
        Batch | None,
        says("Gathers events and creates one object for many; default: one object for each event."),
    ] = None
    successful_jobs_history_limit: Annotated[
        int, int32("Number of jobs that have succeeded and are kept.", minimum=0, **api_default(3))
    ] = 3
    failed_jobs_history_limit: Annotated[
        int, int32("Number of jobs that have failed and are kept.", minimum=0, **api_default(3))
    ] = 3


class StatusEvent(CrdModel):
    """The values of an event that a template may contain."""

    id: Annotated[str, says("ce-id of the event.")] = ""
    type: Annotated[str, says("ce-type of the event.")] = ""
    time: Annotated[Time, says("When it happened.", format="date-time")] = EPOCH
    object_namespace: Annotated[str, says("Namespace of the object that the fact is about.")] = ""
    object_name: Annotated[str, says("Name of the object that the fact is about.")] = ""
    object_uid: Annotated[str, says("Uid of the object that the fact is about.")] = ""
    store_source: Annotated[str, says("Name under which the object store sends notifications.")] = ""
    store_bucket: Annotated[str, says("Bucket of the stored object.")] = ""
    store_key: Annotated[str, says("Key of the stored object.")] = ""
    chain: Annotated[
        tuple[str, ...], says("Uids of the triggers whose jobs led to the event, the oldest first.")
    ] = ()


class StatusGathered(CrdModel):
    """Gathered events. One object will be created for all of them, with the values of the newest."""

    events: Annotated[int, says("Number of events.", format="int64")] = 0
    since: Annotated[Time, says("When the first of the events was accepted.", format="date-time")] = EPOCH
    until: Annotated[Time, says("When the last of the events was accepted.", format="date-time")] = EPOCH
    newest: Annotated[StatusEvent, says("Newest event. Its values fill the template.")] = StatusEvent()


class StatusRefused(CrdModel):
    """A refusal by the API server of the object that the template renders."""

    generation: Annotated[
        int, says("Generation of the trigger whose template was refused.", format="int64")
    ] = 0
    retry_at: Annotated[
        Time, says("When the creation is tried again, unless the spec changes before.", format="date-time")
    ] = EPOCH


class StatusChild(CrdModel):
    """An object that the trigger created."""

    kind: Annotated[str, says("SampleJob or PaddleJob.")] = ""
    name: Annotated[str, says("Name of the object.")] = ""
    uid: Annotated[str, says("Uid of the object.")] = ""


class StatusSchedule(CrdModel):
    """The last and the next time of the schedule."""

    expression: Annotated[str, says("Schedule and time zone that the times belong to.")] = ""
    since: Annotated[
        Time, says("Last scheduled time that was handled, or when the schedule began.", format="date-time")
    ] = EPOCH
    next: Annotated[Time | None, says("Next scheduled time.", format="date-time")] = None


DEFERRED_IDS = 16
"""Deferred events whose ids are in the status, at most."""


class StatusDeferred(CrdModel):
    """Events that could not be handled yet.

    They are kept in the bucket `pw_trigger_deferred` and tried again.
    """

    store: Annotated[str, says("Identifies the entry of the bucket that holds the events.")] = ""
    events: Annotated[int, says("Number of deferred events.", format="int64")] = 0
    oldest: Annotated[Time, says("When the first of the events happened.", format="date-time")] = EPOCH
    newest: Annotated[Time, says("When the last of the events happened.", format="date-time")] = EPOCH
    ids: Annotated[tuple[str, ...], says("ce-ids of the first of the events.", maxItems=DEFERRED_IDS)] = ()
    reason: Annotated[str, says("Why the last attempt failed, as one CamelCase word.")] = ""
    message: Annotated[
        str, says("Object that could not be created in the last attempt, and the API server's message.")
    ] = ""
    stuck: Annotated[
        bool,
        says("Whether no creation succeeds at present, so that new events are deferred without an attempt."),
    ] = False


_EXPLAINED_BY = (
    ("Ready", "False"),
    ("EventsLost", "True"),
    ("Blocked", "True"),
    ("LoopGuarded", "True"),
    ("Ready", ""),
)


@dataclass(frozen=True)
class TriggerAnnouncement(Announcement):
    """A fact about the trigger, with the values of its message.

    A status contains the message in `payload` instead. Only facts that an older release recorded have the
    values.
    """

    event: Annotated[str, says("ce-id of the newest event.")] = ""
    event_type: Annotated[str, says("ce-type of the newest event.")] = ""
    events: Annotated[int, says("Number of events.", format="int64")] = 0
    created: Annotated[StatusChild | None, says("Object that was created.")] = None
    reason: Annotated[str, says("Why the API server refused the object, as one CamelCase word.")] = ""
    message: Annotated[str, says("Message of the API server.")] = ""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class TriggerStatus(CommonStatus):
    """The observed state of the trigger."""

    announcements: Annotated[
        tuple[TriggerAnnouncement, ...],
        says(
            "Facts to publish on the bus, and the last published fact of each name.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    events: Annotated[int, says("Number of events that matched, including skipped ones.", format="int64")] = 0
    skipped: Annotated[
        int,
        says(
            "Number of events that created nothing, because the trigger was suspended, its own job or a"
            " long chain of triggers led to the event, or the schedule's deadline had passed.",
            format="int64",
        ),
    ] = 0
    fired: Annotated[int, says("Number of created objects.", format="int64")] = 0
    active: Annotated[int, says("Number of created jobs that have not ended.", format="int64")] = 0
    last_fired_time: Annotated[Time | None, says("When the last object was created.", format="date-time")] = (
        None
    )
    last_event: Annotated[str, says("ce-id of the event for which the last object was created.")] = ""
    last_event_time: Annotated[
        Time | None, says("When the newest accepted event happened.", format="date-time")
    ] = None
    last_child: StatusChild | None = None
    waiting: Annotated[
        StatusGathered | None, says("Events that wait for their batch to end, or for the running job to end.")
    ] = None
    firing: Annotated[
        StatusGathered | None, says("Gathered events whose object is being created at present.")
    ] = None
    refused: Annotated[
        StatusRefused | None, says("Refusal of the template. Present while events wait because of it.")
    ] = None
    deferred: Annotated[
        StatusDeferred | None, says("Events that could not be handled yet. They are tried again.")
    ] = None
    schedule: Annotated[
        StatusSchedule | None, says("Times of the schedule. Present only with when.schedule.")
    ] = None
    lost: Annotated[
        int, says("Number of deferred events that the bus has lost. They create nothing.", format="int64")
    ] = 0
    recent: Annotated[
        tuple[str, ...],
        says("Digests of the last accepted events, with which repeated events are detected.", maxItems=512),
    ] = ()

    def render(self) -> dict[str, Any]:
        """The whole `status` as JSON, without empty fields and without facts that are no longer needed."""
        outbox = self.model_copy(update={"announcements": outstanding(self.announcements)})
        dumped = outbox.model_dump(mode="json", by_alias=True, exclude={"conditions"})
        return {
            **_without_empty(dumped),
            **explain(self.conditions, _EXPLAINED_BY),
            "conditions": render_conditions(self.conditions),
        }


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(item) for name, item in value.items() if item not in (None, "", [])}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


TRIGGER_RULES = (
    rule(
        "has(self.spec)",
        "spec is required: set spec.when and spec.create",
        field=".spec",
        reason="FieldValueRequired",
    ),
    rule(
        f"size(self.metadata.name) <= {TRIGGER_NAME_LENGTH} && !self.metadata.name.contains('.')",
        f"metadata.name must have at most {TRIGGER_NAME_LENGTH} characters and no '.', since the names of the"
        " jobs and their pods are made from it: shorten it",
        field=".metadata.name",
    ),
)
