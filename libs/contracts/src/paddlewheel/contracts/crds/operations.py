"""Data operations of a SampleJob: a row for each, with the words that name it and the models that carry it.

To add an operation: a member of RunSpec's `operation` in `protos/paddlewheel/cache/v1/cache.proto`, its
options and its row here, and `cache_runtime/operations/<member>.py`. `make gen` writes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds.base import (
    PARENT,
    CrdModel,
    api_default,
    int32,
    needs,
    rule,
    rules,
    says,
    without_match,
)
from paddlewheel.contracts.crds.limits import (
    KEY_LENGTH,
    PATH_LENGTH,
    PATHS,
    STRATEGIES,
    SYNC_THREADS,
    WARMUP_THREADS,
)
from paddlewheel.contracts.crds.options import SOURCE_REMEDY, is_known_source, kebab_case, known_source
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    RunSpec,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.core.errors import Permanent

_NO_PARENT = without_match(PARENT, "must not contain '..': give a path below the data set's root, e.g. train")
_NO_NUL = r"^[^\x00]*$"
_PATH = {"maxLength": KEY_LENGTH, "pattern": _NO_NUL}
_RELATIVE = {**_PATH, **rules(_NO_PARENT)}
_CACHE_DIRECTORY = without_match(
    PARENT,
    "must not contain '..': name a cache directory as spec.cache.levels of the set does",
)
_NAMES_SOMETHING = without_match("^[/.]*$", "must not be the data set's root: name the paths to remove")


TWO_DELETIONS = (
    "delete-dst and delete-src cannot be combined: sync with delete-dst first, then with delete-src"
)
"""A sync that is repeated after its source has begun to be emptied would delete the copies as extra files."""


def _at_least_zero(value: int) -> int:
    return max(value, 0)


class SyncOptions(CrdModel):
    """What to copy into the data set, from where."""

    model_config = ConfigDict(
        alias_generator=kebab_case,
        json_schema_extra=rules(
            rule(
                "!(has(self.delete__dash__src) && self.delete__dash__src"
                " && has(self.delete__dash__dst) && self.delete__dash__dst)",
                TWO_DELETIONS,
                lambda options: not (options.delete_src and options.delete_dst),
            )
        ),
    )

    source: Annotated[
        str,
        says(
            "NAME://BUCKET[.ENDPOINT][/PREFIX]; empty = the set's own source. NAME:// is needed: JuiceFS"
            " takes an address without it for a path in the runtime's container.",
            maxLength=PATH_LENGTH,
            **rules(
                rule(
                    f"self == '' || ({known_source('self')})",
                    SOURCE_REMEDY,
                    lambda value: value == "" or is_known_source(value),
                )
            ),
        ),
    ] = ""
    destination: Annotated[str, says("Directory below the set's root; empty = the root.", **_RELATIVE)] = ""
    start: Annotated[str, says("First key to copy.")] = ""
    end: Annotated[str, says("Last key to copy.")] = ""
    exclude: Annotated[str, says("Pattern of keys to exclude, unless include matches them, too.")] = ""
    include: Annotated[str, says("Pattern of keys to include; without exclude, only these.")] = ""
    manager: Annotated[str, says("Accepted without effect: runs are coordinated over the bus.")] = ""
    worker: Annotated[str, says("Accepted without effect: every node of the set takes part.")] = ""
    threads: Annotated[int, int32(f"Concurrent transfers; 0 = {SYNC_THREADS}.", minimum=0)] = 0
    http_port: Annotated[int, int32("Accepted without effect.")] = 0
    bwlimit: Annotated[
        int, int32("Mbit per second over all nodes together; 0 = no limit."), AfterValidator(_at_least_zero)
    ] = 0
    update: Annotated[
        bool,
        says(
            "Overwrite files that are newer in the source, and no others, whatever their size. Without update"
            " and force-update: those of another size."
        ),
    ] = False
    force_update: Annotated[bool, says("Overwrite all files, also those of the same size.")] = False
    perms: Annotated[bool, says("Keep permissions.")] = False
    dirs: Annotated[bool, says("Copy directories too.")] = False
    dry: Annotated[bool, says("Dry run.")] = False
    delete_src: Annotated[
        bool,
        says(
            "Delete from the source each object that passes the filters and that the destination then has"
            " with the same content, whether this sync has copied it or found it there."
        ),
    ] = False
    delete_dst: Annotated[
        bool,
        says("Delete files that are not in the source. Fails if that is empty, or has less than was copied."),
    ] = False
    no_https: Annotated[bool, says("Use plain HTTP for the source.")] = False


class SamplerOptions(CrdModel):
    """Arguments of the `paddle.io.DistributedBatchSampler` that will read; rank i reads on partition i."""

    model_config = ConfigDict(
        json_schema_extra=rules(needs(".batchSize", "batchSize is required: give the sampler's batch_size"))
    )

    batch_size: Annotated[int, int32("Samples of a batch of one rank.", minimum=1)] = 1
    shuffle: Annotated[bool, says("The sampler shuffles.")] = False
    epoch: Annotated[int, int32("The epoch, which is the seed of the shuffle.", minimum=0)] = 0


class WarmupOptions(CrdModel):
    """What to load onto the nodes and how to split it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(has(self.strategyName) && self.strategyName == 'sampler') == has(self.sampler)",
                "strategyName sampler and the object sampler go together: give both, or neither",
                lambda model: (model.strategy_name == "sampler") == (model.sampler is not None),
            )
        )
    )

    paths: Annotated[
        tuple[Annotated[str, says("Path below the set's root.", **_RELATIVE)], ...],
        says("Paths below the set's root; none = the whole set.", minItems=1, maxItems=PATHS),
    ] = ()
    partitions: Annotated[int, int32("Replaced by the set's own value.", minimum=1)] = 1
    strategy_name: Annotated[
        str,
        says(
            "sequence: each file on the same partition every time, warmed in the order of names;"
            " random: on that same partition, warmed in a random order; sampler: partition i has what rank i"
            " reads.",
            enum=sorted(STRATEGIES),
            **api_default(STRATEGIES[0]),
        ),
    ] = STRATEGIES[0]
    file: Annotated[str, says("Path below the set's root of a list, one path per line.", **_RELATIVE)] = ""
    threads: Annotated[int, int32(f"Concurrent reads on each node; 0 = {WARMUP_THREADS}.", minimum=0)] = 0
    sampler: Annotated[SamplerOptions | None, says("For the strategy sampler.")] = None


class RmrOptions(CrdModel):
    """What to remove from the data set."""

    model_config = ConfigDict(
        json_schema_extra=rules(needs(".paths", "paths is required: name the paths to remove"))
    )

    paths: Annotated[
        tuple[
            Annotated[
                str, says("Path below the set's root.", **_PATH, **rules(_NO_PARENT, _NAMES_SOMETHING))
            ],
            ...,
        ],
        says("Paths below the set's root.", minItems=1, maxItems=PATHS),
    ] = ()


class ClearOptions(CrdModel):
    """Which cache directories to empty."""

    paths: Annotated[
        tuple[Annotated[str, says("Cache directory of the host.", **_PATH, **rules(_CACHE_DIRECTORY))], ...],
        says("Cache directories, or where the runtime mounts them; none = all.", minItems=1, maxItems=PATHS),
    ] = ()


class OperationOptions(CrdModel):
    """The options of every operation; `spec.type` selects which of them apply."""

    sync_options: Annotated[SyncOptions | None, says("For type sync.")] = None
    warmup_options: Annotated[WarmupOptions | None, says("For type warmup.")] = None
    rmr_options: Annotated[RmrOptions | None, says("For type rmr.")] = None
    clear_options: Annotated[ClearOptions | None, says("For type clear.")] = None


@dataclass(frozen=True)
class Operation:
    """One kind of data operation.

    Args:
        word: `spec.type` of a SampleJob.
        member: the member of RunSpec's oneof; also the `operation` of cache facts and metrics.
        model: the message in that member.
        options: the model of `spec.<word>Options`.
        needs_ready: whether the SampleSet must be ready or partially ready, and all of its partitions take
            part; otherwise a mounted one is enough, and the partitions that are up take part.
    """

    word: str
    member: str
    model: type[WireModel]
    options: type[CrdModel]
    needs_ready: bool

    @property
    def options_field(self) -> str:
        """The field of a SampleJob's spec that holds the options."""
        return f"{self.word}Options"


OPERATIONS = (
    Operation("sync", "sync", SyncOperation, SyncOptions, needs_ready=False),
    Operation("warmup", "warmup", WarmupOperation, WarmupOptions, needs_ready=True),
    Operation("rmr", "remove", RemoveOperation, RmrOptions, needs_ready=False),
    Operation("clear", "clear", ClearOperation, ClearOptions, needs_ready=True),
)
WORDS = tuple(operation.word for operation in OPERATIONS)


def operation_for_word(word: str) -> Operation:
    """Look an operation up by `spec.type`. Raises Permanent(UnknownOperation)."""
    found = next((operation for operation in OPERATIONS if operation.word == word), None)
    return _known(found, repr(word), WORDS)


def operation_for_model(model: WireModel) -> Operation:
    """Look an operation up by its message. Raises Permanent(UnknownOperation)."""
    found = next((operation for operation in OPERATIONS if type(model) is operation.model), None)
    return _known(found, type(model).__name__, [operation.model.__name__ for operation in OPERATIONS])


def operation_of(spec: RunSpec) -> Operation:
    """The operation that a run carries. Raises Permanent(UnknownOperation)."""
    found = next((operation for operation in OPERATIONS if operation.member == member_of(spec)), None)
    return _known(found, "the run's operation", [operation.member for operation in OPERATIONS])


def member_of(spec: RunSpec) -> str:
    """The member of the oneof that is set; "" when none is, or only one that this version does not know."""
    members = RunSpec.oneofs["operation"]
    return next((member for member in members if getattr(spec, member) is not None), "")


def _known(found: Operation | None, given: str, known: Sequence[str]) -> Operation:
    if found is None:
        raise Permanent("UnknownOperation", f"{given} is not one of {', '.join(known)}")
    return found
