"""`paddlewheel data create`: a SampleSet and its Secrets from options, followed until it is ready."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from paddlewheel.cli.object_watch import STATUS_INTERVAL_SECONDS, watched
from paddlewheel.cli.output import Format, Output, print_json, print_line, while_read
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.target import Target, Where, on_cluster
from paddlewheel.contracts.crds.kinds import SAMPLE_SET
from paddlewheel.contracts.crds.parse import parse_subject
from paddlewheel.contracts.crds.violations import find_violations
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of
from paddlewheel.core.errors import AlreadyExists, NotFound, Permanent, Retry
from paddlewheel.kube.ports import SAMPLE_SETS, SECRETS, Cluster, Object, WatchedCluster

ENGINE_KEYS = ("name", "storage", "bucket", "metaurl")
"""Keys that an engine's Secret must have; access-key and secret-key are optional."""
STORE_KEYS = ("access-key", "secret-key")
_MIB = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_ENDS = ("Ready", "SyncFailed")


@dataclass(frozen=True)
class Manifests:
    """The objects to create, in this order."""

    secrets: tuple[Object, ...]
    sample_set: Object

    @property
    def all(self) -> tuple[Object, ...]:
        return (*self.secrets, self.sample_set)


@on_cluster()
def create(
    where: Where,
    name: Annotated[str, typer.Argument(help="Name of the new SampleSet, or namespace/name.", metavar="SET")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URI",
            help="Object store to copy from, such as s3://BUCKET.ENDPOINT/PREFIX; default: copy nothing,"
            " because the volume has the data already.",
            show_default=False,
        ),
    ] = "",
    source_secret: Annotated[
        str,
        typer.Option(
            "--source-secret",
            metavar="SECRET",
            help="Existing Secret with the keys of the source; default: the engine's Secret.",
        ),
    ] = "",
    source_file: Annotated[
        str,
        typer.Option(
            "--source-file",
            metavar="FILE",
            help="File with lines access-key=... and secret-key=..., from which Secret SET-source is made.",
        ),
    ] = "",
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="SECRET", help="Existing Secret of the JuiceFS volume that holds the set."
        ),
    ] = "",
    engine_file: Annotated[
        str,
        typer.Option(
            "--engine-file",
            metavar="FILE",
            help="File with lines KEY=VALUE for the keys name, storage, bucket, metaurl, and access-key and"
            " secret-key if the store needs them, from which Secret SET is made; - for standard input.",
        ),
    ] = "",
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of nodes that cache the set, a share on each.")
    ] = 1,
    cache: Annotated[
        list[str] | None,
        typer.Option(
            "--cache",
            metavar="DIR=SIZE",
            help="Directory of the nodes for the cache and its size, such as /ssd/cache=200Gi; repeatable.",
            show_default="in memory, below /dev/shm",
        ),
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Load the set onto its nodes after the copy.")] = False,
    follow_: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Show the progress, until the set is ready.")
    ] = True,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the manifests, with the keys in them, and create nothing."),
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Create a data set and, from files, the Secrets with its keys. Follow it until it is ready.

    An existing set or Secret is never changed. Ctrl-C ends the command, not the set.

    [bold]Examples[/bold]

    [cyan]paddlewheel data create imagenet --from s3://bucket.s3.example.com/imagenet --engine-file volume.env --source-file bucket.env --partitions 4[/cyan]

    [cyan]paddlewheel data create mnist --from s3://public.s3.example.com/mnist --engine volume[/cyan]  with a Secret that exists

    [cyan]paddlewheel data create imagenet --from s3://... --engine volume --dry-run > imagenet.yaml[/cyan]  print manifests to edit
    """  # noqa: E501 - typer would break an example
    in_namespace = "/" in name or not dry_run
    key = where.key(name if in_namespace else f"{where.namespace_of_manifests}/{name}")
    made = make_manifests(
        key,
        source=source,
        engine=_keys(key, "engine", engine, engine_file),
        origin=_keys(key, "source", source_secret, source_file) if source_secret or source_file else None,
        partitions=partitions,
        levels=[_level(word) for word in cache or ()],
        warm=warm,
    )
    if dry_run:
        _print_manifests(made, output)
        return
    created = asyncio.run(while_read(_created(where.target, made, output, is_followed=follow_)))
    if output is Format.JSON:
        print_json(created)
    elif not follow_:
        print_line(f"{key} created; `paddlewheel data show {key}` shows its progress")
    if follow_:
        _print_end(created, output)


@dataclass(frozen=True)
class Keys:
    """A Secret: the name of an existing one, or with values of one to make."""

    name: str
    values: Mapping[str, str] | None = None


def make_manifests(
    key: Key,
    *,
    source: str,
    engine: Keys,
    origin: Keys | None,
    partitions: int = 1,
    levels: Sequence[Mapping[str, Any]] = (),
    warm: bool = False,
) -> Manifests:
    """The manifests of a set and of its Secrets. Raises BadParameter for a spec that the CRD refuses."""
    spec: dict[str, Any] = {"partitions": partitions, "secretRef": {"name": engine.name}}
    if source:
        spec["source"] = {"uri": source, **({"secretRef": {"name": origin.name}} if origin else {})}
    elif origin:
        raise typer.BadParameter("has no effect without --from", param_hint="--source-secret, --source-file")
    else:
        spec["noSync"] = True
    if levels:
        spec["cache"] = {"levels": list(levels)}
    if warm:
        spec["warmup"] = {"strategyName": "sequence"}
    metadata = {"name": key.name, "namespace": key.namespace}
    kind = {"apiVersion": SAMPLE_SETS.api_version, "kind": SAMPLE_SETS.kind}
    sample_set = {**kind, "metadata": metadata, "spec": spec}
    if found := find_violations(SAMPLE_SET, parse_subject(SAMPLE_SET, sample_set)):
        raise typer.BadParameter("; ".join(str(each) for each in found))
    secrets = (_secret(key.namespace, keys) for keys in (engine, origin) if keys and keys.values is not None)
    return Manifests(tuple(secrets), sample_set)


def _secret(namespace: str, keys: Keys) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": keys.name, "namespace": namespace},
        "type": "Opaque",
        "stringData": dict(keys.values or {}),
    }


def _keys(key: Key, what: str, secret: str, file: str) -> Keys:
    """The Secret that the options `--<what>...` name, or the one to make from a file."""
    options = {"engine": ("--engine", "--engine-file"), "source": ("--source-secret", "--source-file")}[what]
    if bool(secret) == bool(file):
        problem = "give one of them, not both" if secret else "give the name of a Secret, or a file with keys"
        raise typer.BadParameter(problem, param_hint=", ".join(options))
    if secret:
        return Keys(secret)
    required = ENGINE_KEYS if what == "engine" else STORE_KEYS
    values = _read_keys(file, required, options[1])
    return Keys(key.name if what == "engine" else f"{key.name}-source", values)


def _read_keys(file: str, required: Sequence[str], option: str) -> dict[str, str]:
    """The lines KEY=VALUE of a file, without comments. Errors name lines by number and never quote values."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint=option) from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or name.strip() in values:
            problem = "is given twice" if equals else "is not KEY=VALUE"
            raise typer.BadParameter(f"{file}, line {number} {problem}", param_hint=option)
        values[name.strip()] = value.strip()
    known = (*ENGINE_KEYS, *STORE_KEYS) if required is ENGINE_KEYS else STORE_KEYS
    if unknown := [name for name in values if name not in known]:
        problem = f"{file} has the unknown keys {', '.join(unknown)}; known are {', '.join(known)}"
        raise typer.BadParameter(problem, param_hint=option)
    if missing := [name for name in required if not values.get(name)]:
        raise typer.BadParameter(f"{file} has no value for {', '.join(missing)}", param_hint=option)
    return values


def _level(word: str) -> dict[str, Any]:
    """`/ssd/cache=200Gi` as an item of spec.cache.levels, whose sizes are in MiB."""
    path, _, size = word.rpartition("=")
    number, unit = size[:-2], size[-2:]
    if not path or not number.isdecimal() or unit not in _MIB:
        problem = f"{word!r} is not DIR=SIZE with a size in Mi, Gi or Ti, such as /ssd/cache=200Gi"
        raise typer.BadParameter(problem, param_hint="--cache")
    return {"path": path, "cacheSize": int(number) * _MIB[unit]}


async def _created(where: Target, made: Manifests, output: Format, *, is_followed: bool) -> Object:
    async with where.connected() as api:
        created = await create_all(api, made)
        if not is_followed:
            return created
        key = str(key_of(created))
        typer.echo(f"{key} created; Ctrl-C ends this command, not the set", err=True)
        with progress_reporter(key, quiet=output is Format.JSON) as report:
            return await follow(api, created, report)


async def create_all(api: Cluster, made: Manifests) -> Object:
    """Create the Secrets, then the set, and return the set. Raises Permanent with what to do."""
    key = key_of(made.sample_set)
    try:
        await api.get(SAMPLE_SETS, key)
    except NotFound:
        pass
    else:
        advice = f"choose another name, or `kubectl -n {key.namespace} delete sampleset {key.name}`"
        raise Permanent("SampleSetExists", f"there is a SampleSet {key} already: {advice}")
    for secret in made.secrets:
        await _create_secret(api, secret)
    try:
        return await api.create(SAMPLE_SETS, made.sample_set)
    except NotFound:
        advice = f"`kubectl create namespace {key.namespace}`, or another --namespace"
        raise Permanent("NoSuchNamespace", f"there is no namespace {key.namespace}: {advice}") from None


async def _create_secret(api: Cluster, secret: Object) -> None:
    """A Secret that exists with the same values is used."""
    key = key_of(secret)
    try:
        await api.create(SECRETS, secret)
        return
    except NotFound:
        advice = f"`kubectl create namespace {key.namespace}`, or another --namespace"
        raise Permanent("NoSuchNamespace", f"there is no namespace {key.namespace}: {advice}") from None
    except AlreadyExists:
        found = await api.get(SECRETS, key)
    values = {name: base64.b64decode(text).decode() for name, text in (found.get("data") or {}).items()}
    if values != secret["stringData"]:
        advice = f"use it with --engine or --source-secret {key.name}, or choose another name for the set"
        raise Permanent("SecretExists", f"there is a Secret {key} with other values: {advice}")


async def follow(api: WatchedCluster, sample_set: Object, report: Report) -> Object:
    """Follow a set until it is ready or its first copy has failed, and return it.

    Raises:
        Permanent: the set was deleted.
    """
    seen, trouble = sample_set, ""
    async with watched(api, SAMPLE_SETS, sample_set, is_final) as watch:
        while not is_final(seen):
            report(f"{state(seen)}{trouble}", 0.0)
            await asyncio.sleep(STATUS_INTERVAL_SECONDS)
            try:
                found, trouble = await watch.look(), ""
            except Retry as error:
                trouble = f"; the API server does not answer: {error.reason}"
                continue
            if found is None:
                raise Permanent("SampleSetDeleted", f"{key_of(seen)} was deleted before it was ready")
            seen = found
    return seen


def is_final(sample_set: Object) -> bool:
    """The set is ready, or its first copy has failed."""
    return (sample_set.get("status") or {}).get("phase") in _ENDS


def state(sample_set: Object) -> str:
    """The state in one line: `Syncing: 120 of 340 files`."""
    status = sample_set.get("status") or {}
    if not status:
        return "waiting for dataset-controller"
    phase, reason = status.get("phase") or "not bound", status.get("reason", "")
    return ": ".join(
        part for part in (phase, reason if reason != phase else "", status.get("message")) if part
    )


def _print_manifests(made: Manifests, output: Format) -> None:
    if output is Format.JSON:
        print_json(list(made.all))
    else:
        print_line(yaml.safe_dump_all(made.all, sort_keys=False).rstrip())


def _print_end(sample_set: Object, output: Format) -> None:
    """Print how it ended. Raises an error when the first copy has failed, so that the exit code is 1."""
    is_ready = (sample_set.get("status") or {}).get("phase") == "Ready"
    if output is Format.JSON:
        raise typer.Exit(0 if is_ready else 1)
    key = key_of(sample_set)
    if not is_ready:
        advice = f"`paddlewheel data explain {key}` shows what to do"
        raise Permanent("SyncFailed", f"{key}: {state(sample_set)}; {advice}")
    print_line(f"{key} is ready; mount it with `paddlewheel job run --data {key.name}:/data ...`")
