"""Trigger, events.paddlepaddle.org/v1alpha1: a fact, an object store or the clock starts work."""

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
"""With the 11 characters of `-<digest>` the names of what is created fit every kind's own limit."""
NOTIFICATIONS = ("ObjectCreated", "ObjectRemoved")
POLICIES = ("Allow", "Forbid", "Replace")
_HEARD = ("paddlewheel.jobs.", "paddlewheel.datasets.")
FACTS = tuple(sorted(t for t in EVENTS if t.startswith(_HEARD) and not t.endswith("Progressed")))
"""Facts that may start work. Progress is lossy by contract, so nothing may depend on it."""

Time = Annotated[datetime, PlainSerializer(write_time)]


class FactObject(CrdModel):
    """Which objects the fact must be about; both fields given must both hold."""

    name: Annotated[str, says("Name of the object; empty = any of this namespace.")] = ""
    created_by: Annotated[
        str, says("Name of a Trigger of this namespace that must have created the object; empty = anybody.")
    ] = ""


class FactSource(CrdModel):
    """A fact on the bus about an object of the trigger's own namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(
                ".type",
                "when.fact.type is required: name a fact, e.g. paddlewheel.datasets.v1.SampleSetReady",
            )
        )
    )

    type: Annotated[str, says("Full name of the fact.", enum=list(FACTS))] = ""
    object: Annotated[FactObject | None, says("Narrows the objects; absent = any.")] = None


SOURCE, SOURCE_LENGTH = r"^[A-Za-z0-9_-]+$", 63
"""Names of sources: a subject of the bus has them as one token."""


class ObjectStoreSource(CrdModel):
    """Notifications of an object store."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".source", "when.objectStore.source is required: name the source the store notifies as"),
            needs(".bucket", "when.objectStore.bucket is required: name the bucket to follow"),
        )
    )

    source: Annotated[
        str,
        says(
            "Name under which the store notifies: the last part of the webhook's address.",
            maxLength=SOURCE_LENGTH,
            pattern=SOURCE,
        ),
    ] = ""
    bucket: Annotated[str, says("Name of the bucket.", minLength=1, maxLength=255)] = ""
    prefix: Annotated[str, says("What keys must begin with; empty = any.", maxLength=KEY_LENGTH)] = ""
    suffix: Annotated[str, says("What keys must end with; empty = any.", maxLength=KEY_LENGTH)] = ""
    events: Annotated[
        tuple[Annotated[str, says("ObjectCreated or ObjectRemoved.", enum=list(NOTIFICATIONS))], ...],
        says(
            "Changes that count; ObjectCreated also when an object was overwritten.",
            minItems=1,
            maxItems=len(NOTIFICATIONS),
            **api_default(["ObjectCreated"]),
        ),
    ] = ("ObjectCreated",)


CRON = r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[A-Za-z0-9*,/#-]+( [A-Za-z0-9*,/#-]+){4})$"
"""Five fields, or the name of a usual schedule. What the fields may hold is checked by trigger-controller."""


class ScheduleSource(CrdModel):
    """Times of the clock, as of a CronJob."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".cron", "when.schedule.cron is required: say when, e.g. '30 2 * * *' for 02:30 every day")
        )
    )

    cron: Annotated[
        str,
        says(
            "Minute, hour, day of the month, month and day of the week, each after one space; or @hourly,"
            " @daily, @weekly, @monthly, @yearly.",
            maxLength=128,
            pattern=CRON,
        ),
    ] = ""
    time_zone: Annotated[
        str,
        says(
            "Name of the time zone in which the fields are meant, e.g. Asia/Shanghai.",
            maxLength=64,
            pattern=r"^[A-Za-z0-9_+/-]+$",
            **api_default("UTC"),
        ),
    ] = "UTC"
    starting_deadline_seconds: Annotated[
        int | None,
        int32(
            "A time that has passed for longer starts nothing; absent = the newest one is made up for.",
            minimum=1,
        ),
    ] = None


class When(CrdModel):
    """What starts the work: one of the three."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "[has(self.fact), has(self.objectStore), has(self.schedule)].filter(x, x).size() == 1",
                "when needs exactly one of fact, objectStore, schedule: keep one, or make several Triggers",
            )
        )
    )

    fact: Annotated[FactSource | None, says("A fact about a job or a data set.")] = None
    object_store: Annotated[ObjectStoreSource | None, says("A change in an object store.")] = None
    schedule: Annotated[ScheduleSource | None, says("Times of the clock.")] = None


class TemplateMetadata(CrdModel):
    """Metadata of what is created; its name is made from the trigger's and the event's id."""

    labels: Annotated[dict[str, str], says("Labels.")] = Field(default_factory=dict)
    annotations: Annotated[dict[str, str], says("Annotations.")] = Field(default_factory=dict)


class SampleJobTemplate(CrdModel):
    """A SampleJob to create."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".spec", "sampleJob.spec is required: say what the SampleJob does, e.g. type: sync")
        )
    )

    metadata: Annotated[TemplateMetadata | None, says("Labels and annotations.")] = None
    spec: Annotated[SampleJobSpec | None, says("As of a SampleJob; strings may hold $(...) names.")] = None


class PaddleJobTemplate(CrdModel):
    """A PaddleJob to create."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".spec", "paddleJob.spec is required: say what the PaddleJob runs, e.g. worker")
        )
    )

    metadata: Annotated[TemplateMetadata | None, says("Labels and annotations.")] = None
    spec: Annotated[PaddleJobSpec | None, says("As of a PaddleJob; strings may hold $(...) names.")] = None


class Create(CrdModel):
    """What is created: one of the two, in the trigger's namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.sampleJob) != has(self.paddleJob)",
                "create needs exactly one of sampleJob and paddleJob: remove one, or make two Triggers",
            )
        )
    )

    sample_job: Annotated[SampleJobTemplate | None, says("A data operation.")] = None
    paddle_job: Annotated[PaddleJobTemplate | None, says("A training job.")] = None


class Batch(CrdModel):
    """Many events, one job: events are gathered until it is quiet, or enough are there."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".quietSeconds", "batch.quietSeconds is required: say after how many seconds of silence")
        )
    )

    quiet_seconds: Annotated[
        int, int32("Seconds without another event until the gathered ones fire.", minimum=1, maximum=86400)
    ] = 1
    max_events: Annotated[
        int, int32("As many gathered events fire at once; 0 = only silence does.", minimum=0)
    ] = 0


class TriggerSpec(CrdModel):
    """When to create what."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".when", "spec.when is required: set when.fact, when.objectStore or when.schedule"),
            needs(".create", "spec.create is required: set create.sampleJob or create.paddleJob"),
            rule(
                "!(has(self.batch) && has(self.when) && has(self.when.schedule))",
                "spec.batch gathers events, and when.schedule has one at a time: remove spec.batch",
            ),
        )
    )

    when: Annotated[When | None, says("What starts the work.")] = None
    create: Annotated[Create | None, says("The work.")] = None
    suspend: Annotated[
        bool, says("Nothing is created; events that come meanwhile are skipped, not kept.")
    ] = False
    concurrency_policy: Annotated[
        str,
        says(
            "Allow: jobs may run side by side. Forbid: events that come while a job of the trigger runs are"
            " gathered, and one job is created for them all when it has ended. Replace: the running job is"
            " deleted once the new one exists.",
            enum=list(POLICIES),
            **api_default("Allow"),
        ),
    ] = "Allow"
    batch: Annotated[Batch | None, says("Gathers events; absent = one job for each event.")] = None
    successful_jobs_history_limit: Annotated[
        int, int32("Jobs that ended well and are kept.", minimum=0, **api_default(3))
    ] = 3
    failed_jobs_history_limit: Annotated[
        int, int32("Jobs that ended badly and are kept.", minimum=0, **api_default(3))
    ] = 3


class StatusEvent(CrdModel):
    """One event, as far as a template may name it."""

    id: Annotated[str, says("ce-id of the event.")] = ""
    type: Annotated[str, says("ce-type of the event.")] = ""
    time: Annotated[Time, says("When it happened.", format="date-time")] = EPOCH
    object_namespace: Annotated[str, says("Namespace of the object a fact is about.")] = ""
    object_name: Annotated[str, says("Name of the object a fact is about.")] = ""
    object_uid: Annotated[str, says("Uid of the object a fact is about.")] = ""
    store_source: Annotated[str, says("Name under which the object store notifies.")] = ""
    store_bucket: Annotated[str, says("Bucket.")] = ""
    store_key: Annotated[str, says("Key of the stored object.")] = ""
    chain: Annotated[
        tuple[str, ...], says("Uids of the triggers whose work led to the event, oldest first.")
    ] = ()


class StatusGathered(CrdModel):
    """Events for which one object is going to be created, from the newest of them."""

    events: Annotated[int, says("How many.", format="int64")] = 0
    since: Annotated[Time, says("When the first of them was taken in.", format="date-time")] = EPOCH
    until: Annotated[Time, says("When the last of them was taken in.", format="date-time")] = EPOCH
    newest: Annotated[StatusEvent, says("The event whose values fill the template.")] = StatusEvent()


class StatusRefused(CrdModel):
    """The API server refused the object that the template makes."""

    generation: Annotated[int, says("Generation of the refused template.", format="int64")] = 0
    retry_at: Annotated[
        Time, says("When it is tried again if the spec does not change.", format="date-time")
    ] = EPOCH


class StatusChild(CrdModel):
    """An object the trigger created."""

    kind: Annotated[str, says("SampleJob or PaddleJob.")] = ""
    name: Annotated[str, says("Name of the object.")] = ""
    uid: Annotated[str, says("Uid of the object.")] = ""


class StatusSchedule(CrdModel):
    """How far the schedule is."""

    expression: Annotated[str, says("The schedule that the times belong to, with its time zone.")] = ""
    since: Annotated[
        Time, says("The last time that was dealt with, or when the schedule began.", format="date-time")
    ] = EPOCH
    next: Annotated[Time | None, says("When it starts the work next.", format="date-time")] = None


DEFERRED_IDS = 16
"""Deferred events that the status names."""


class StatusDeferred(CrdModel):
    """Events that could not be handled for now: kept in the bucket `pw_trigger_deferred`, and tried again."""

    store: Annotated[str, says("Identifies the entry of the bucket that holds them.")] = ""
    events: Annotated[int, says("How many.", format="int64")] = 0
    oldest: Annotated[Time, says("When the first of them happened.", format="date-time")] = EPOCH
    newest: Annotated[Time, says("When the last of them happened.", format="date-time")] = EPOCH
    ids: Annotated[tuple[str, ...], says("ce-ids of the first of them.", maxItems=DEFERRED_IDS)] = ()
    reason: Annotated[str, says("Why the last try failed.")] = ""
    message: Annotated[str, says("The object of the last try, and the API server's own words.")] = ""
    stuck: Annotated[bool, says("No creation succeeds, so new events are deferred without a try.")] = False


_EXPLAINED_BY = (
    ("Ready", "False"),
    ("EventsLost", "True"),
    ("Blocked", "True"),
    ("LoopGuarded", "True"),
    ("Ready", ""),
)


@dataclass(frozen=True)
class TriggerAnnouncement(Announcement):
    """A fact of the trigger with the parts of its message.

    In a status, `payload` is the message instead. Facts of an older release still have the parts.
    """

    event: Annotated[str, says("ce-id of the newest event.")] = ""
    event_type: Annotated[str, says("ce-type of that event.")] = ""
    events: Annotated[int, says("Number of events.", format="int64")] = 0
    created: Annotated[StatusChild | None, says("The object that was created.")] = None
    reason: Annotated[str, says("Why the API server refused it.")] = ""
    message: Annotated[str, says("The API server's own words.")] = ""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class TriggerStatus(CommonStatus):
    """What the trigger has done."""

    announcements: Annotated[
        tuple[TriggerAnnouncement, ...],
        says(
            "Facts to publish on the bus, and the last published one of each name.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    events: Annotated[int, says("Events that matched, skipped ones included.", format="int64")] = 0
    skipped: Annotated[
        int,
        says(
            "Events that started nothing: suspended, the trigger's own doing, or past a schedule's deadline.",
            format="int64",
        ),
    ] = 0
    fired: Annotated[int, says("Objects created.", format="int64")] = 0
    active: Annotated[int, says("Objects created whose work has not ended.", format="int64")] = 0
    last_fired_time: Annotated[Time | None, says("When the last object was created.", format="date-time")] = (
        None
    )
    last_event: Annotated[str, says("ce-id of the event the last object was created for.")] = ""
    last_event_time: Annotated[
        Time | None, says("When the newest event that was taken in happened.", format="date-time")
    ] = None
    last_child: StatusChild | None = None
    waiting: Annotated[StatusGathered | None, says("Events that have not fired yet.")] = None
    firing: Annotated[
        StatusGathered | None, says("Gathered events whose object is being created just now.")
    ] = None
    refused: Annotated[StatusRefused | None, says("Present while a refused template holds events up.")] = None
    deferred: Annotated[
        StatusDeferred | None, says("Present while events could not be handled; they are tried again.")
    ] = None
    schedule: Annotated[StatusSchedule | None, says("Present while a schedule is followed.")] = None
    lost: Annotated[
        int, says("Deferred events that the bus has lost: they start nothing.", format="int64")
    ] = 0
    recent: Annotated[
        tuple[str, ...],
        says("Digests of the events taken in last, so that none counts twice.", maxItems=512),
    ] = ()

    def render(self) -> dict[str, Any]:
        """The whole `status` as JSON, without fields that are empty and facts that are done with."""
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
