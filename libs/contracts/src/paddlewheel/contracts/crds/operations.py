"""The data operations of a SampleJob: their options, and a table of their names and models.

To add an operation, add a member to RunSpec's `operation` in `protos/paddlewheel/cache/v1/cache.proto`, its
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
    EXTENSION_LENGTH,
    EXTENSIONS,
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
"""Why not: delete-src empties the source. When such a sync is repeated, delete-dst would find the copied
files missing in the source and delete them, too."""


def _at_least_zero(value: int) -> int:
    return max(value, 0)


class SyncOptions(CrdModel):
    """Options of a sync, which copies files from an object store into the data set."""

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
            "Address to copy from: NAME://BUCKET[.ENDPOINT][/PREFIX], e.g. s3://bucket.s3.example.com/train;"
            " default: spec.source.uri of the set. NAME:// is required: without it, JuiceFS reads the"
            " address as a path in the runtime's container.",
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
    destination: Annotated[
        str,
        says(
            "Directory to copy into, relative to the set's root, e.g. train; default: the root.", **_RELATIVE
        ),
    ] = ""
    start: Annotated[str, says("First key to copy, in alphabetical order; default: the first of all.")] = ""
    end: Annotated[str, says("Last key to copy, in alphabetical order; default: the last of all.")] = ""
    exclude: Annotated[
        str,
        says("Pattern of keys that are not copied, e.g. *.tmp. A key that include also matches is copied."),
    ] = ""
    include: Annotated[
        str, says("Pattern of keys to copy, e.g. *.jpg. Without exclude, only matching keys are copied.")
    ] = ""
    manager: Annotated[str, says("Has no effect: runs are coordinated over the bus.")] = ""
    worker: Annotated[str, says("Has no effect: every node of the set takes part in the sync.")] = ""
    threads: Annotated[
        int, int32(f"Concurrent transfers on each node; default, and 0: {SYNC_THREADS}.", minimum=0)
    ] = 0
    http_port: Annotated[int, int32("Has no effect.")] = 0
    bwlimit: Annotated[
        int,
        int32("Bandwidth of all nodes together, in Mbit per second; default, and 0: no limit."),
        AfterValidator(_at_least_zero),
    ] = 0
    update: Annotated[
        bool,
        says(
            "Overwrite files that are newer in the source, whatever their size, and leave all others. By"
            " default, without update and force-update, files whose size differs are overwritten."
        ),
    ] = False
    force_update: Annotated[bool, says("Overwrite all files, even if their size is the same.")] = False
    perms: Annotated[bool, says("Keep the permissions of files.")] = False
    dirs: Annotated[bool, says("Copy directories, too, even if they are empty.")] = False
    dry: Annotated[bool, says("Dry run: count the files that would be copied, and copy nothing.")] = False
    delete_src: Annotated[
        bool,
        says(
            "After the copy, delete objects from the source: each object that passes the filters and is in"
            " the destination with the same content, whether or not this sync has copied it."
        ),
    ] = False
    delete_dst: Annotated[
        bool,
        says(
            "After the copy, delete files of the destination that are not in the source. The sync fails"
            " without deleting anything if the source is empty, or has fewer objects than were copied."
        ),
    ] = False
    no_https: Annotated[bool, says("Use plain HTTP for the source.")] = False


class SamplerOptions(CrdModel):
    """Arguments of the `paddle.io.DistributedBatchSampler` that the training uses.

    Rank i reads on partition i.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(needs(".batchSize", "batchSize is required: give the sampler's batch_size"))
    )

    batch_size: Annotated[int, int32("Samples in each batch of one rank.", minimum=1)] = 1
    shuffle: Annotated[bool, says("Whether the sampler shuffles the samples; default: false.")] = False
    epoch: Annotated[int, int32("Number of the epoch, which seeds the shuffle; default: 0.", minimum=0)] = 0
    extensions: Annotated[
        tuple[Annotated[str, says("End of a file's name, e.g. .npy.", maxLength=EXTENSION_LENGTH)], ...],
        says(
            "The files that are samples, as in DatasetFolder(extensions=...); an empty text is the end of"
            " every name. Default: .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and .webp, or all if no"
            " file has one of these. Other files,"
            " and files outside a class directory, are not warmed. If the warmup has a file with a list of"
            " paths, all of these are samples.",
            minItems=1,
            maxItems=EXTENSIONS,
        ),
    ] = ()


class WarmupOptions(CrdModel):
    """Options of a warmup, which loads files into the caches of the nodes."""

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
        tuple[Annotated[str, says("Path relative to the set's root.", **_RELATIVE)], ...],
        says(
            "Files and directories to warm, relative to the set's root, e.g. train; default: the whole set.",
            minItems=1,
            maxItems=PATHS,
        ),
    ] = ()
    partitions: Annotated[int, int32("Has no effect: spec.partitions of the set applies.", minimum=1)] = 1
    strategy_name: Annotated[
        str,
        says(
            "How files are assigned to partitions. sequence: a file is always on the same partition, and"
            " files are warmed in the order of their names. random: a file is on that same partition, and"
            " files are warmed in a random order. sampler: partition i holds the files that rank i reads.",
            enum=sorted(STRATEGIES),
            **api_default(STRATEGIES[0]),
        ),
    ] = STRATEGIES[0]
    file: Annotated[
        str,
        says(
            "A file in the set that lists the paths to warm, one per line, instead of paths. Its own path is"
            " relative to the set's root.",
            **_RELATIVE,
        ),
    ] = ""
    threads: Annotated[
        int, int32(f"Concurrent reads on each node; default, and 0: {WARMUP_THREADS}.", minimum=0)
    ] = 0
    sampler: Annotated[
        SamplerOptions | None,
        says("The sampler of the training. Required by the strategy sampler, and only by it."),
    ] = None


class RmrOptions(CrdModel):
    """Options of rmr, which removes files and directories from the data set."""

    model_config = ConfigDict(
        json_schema_extra=rules(needs(".paths", "paths is required: name the paths to remove"))
    )

    paths: Annotated[
        tuple[
            Annotated[
                str,
                says("Path relative to the set's root.", **_PATH, **rules(_NO_PARENT, _NAMES_SOMETHING)),
            ],
            ...,
        ],
        says(
            "Files and directories to remove, relative to the set's root, e.g. train/old.",
            minItems=1,
            maxItems=PATHS,
        ),
    ] = ()


class ClearOptions(CrdModel):
    """Options of clear, which empties the caches of the nodes and leaves the data in the store."""

    paths: Annotated[
        tuple[Annotated[str, says("Cache directory of the node.", **_PATH, **rules(_CACHE_DIRECTORY))], ...],
        says(
            "Cache directories to empty, as spec.cache.levels of the set names them, or as the runtime"
            " mounts them; default: all.",
            minItems=1,
            maxItems=PATHS,
        ),
    ] = ()


class OperationOptions(CrdModel):
    """The options of all operations. Only those of the operation in `spec.type` have an effect."""

    sync_options: Annotated[SyncOptions | None, says("Options of type sync.")] = None
    warmup_options: Annotated[WarmupOptions | None, says("Options of type warmup.")] = None
    rmr_options: Annotated[RmrOptions | None, says("Options of type rmr, which requires them.")] = None
    clear_options: Annotated[ClearOptions | None, says("Options of type clear.")] = None


@dataclass(frozen=True)
class Operation:
    """One kind of data operation.

    Args:
        word: the value of a SampleJob's `spec.type`.
        member: the member of RunSpec's oneof; also the `operation` of cache facts and metrics.
        model: the message in that member.
        options: the model of `spec.<word>Options`.
        needs_ready: if true, the SampleSet must be ready or partially ready, and all of its partitions take
            part. If false, the set must be mounted, and the partitions that are available take part.
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
    """The operation with this `spec.type`. Raises Permanent(UnknownOperation)."""
    found = next((operation for operation in OPERATIONS if operation.word == word), None)
    return _known(found, repr(word), WORDS)


def operation_for_model(model: WireModel) -> Operation:
    """The operation with this message. Raises Permanent(UnknownOperation)."""
    found = next((operation for operation in OPERATIONS if type(model) is operation.model), None)
    return _known(found, type(model).__name__, [operation.model.__name__ for operation in OPERATIONS])


def operation_of(spec: RunSpec) -> Operation:
    """The operation of a run. Raises Permanent(UnknownOperation)."""
    found = next((operation for operation in OPERATIONS if operation.member == member_of(spec)), None)
    return _known(found, "the run's operation", [operation.member for operation in OPERATIONS])


def member_of(spec: RunSpec) -> str:
    """The member of the oneof that is set; "" if none is set, or one that this release does not know."""
    members = RunSpec.oneofs["operation"]
    return next((member for member in members if getattr(spec, member) is not None), "")


def _known(found: Operation | None, given: str, known: Sequence[str]) -> Operation:
    if found is None:
        raise Permanent("UnknownOperation", f"{given} is not one of {', '.join(known)}")
    return found
