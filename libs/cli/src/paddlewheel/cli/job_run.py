"""`paddlewheel job run`: a PaddleJob from options, followed to its end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer
import yaml

from paddlewheel.cli.job_follow import ending, follow, has_completed
from paddlewheel.cli.names import random_end
from paddlewheel.cli.output import (
    Format,
    Output,
    print_foreign,
    print_json,
    print_line,
    while_read,
)
from paddlewheel.cli.target import Target, Where, list_all, on_cluster
from paddlewheel.contracts.objects import key_of
from paddlewheel.core.errors import AlreadyExists, NotFound, Permanent
from paddlewheel.kube.ports import PADDLE_JOBS, Cluster, Object
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.jobs import TrainingJob

T = TypeVar("T")


@on_cluster()
def run(
    where: Where,
    image: Annotated[str, typer.Option("--image", help="Image of all pods, with Paddle.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Program with its arguments; default: the command of the image."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of the job; default: generated from the name of the image.")
    ] = "",
    workers: Annotated[int, typer.Option("--workers", help="Number of workers.")] = 1,
    servers: Annotated[int, typer.Option("--servers", help="Parameter servers (mode PS).")] = 0,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of each worker.")] = 0,
    cpu: Annotated[str, typer.Option("--cpu", help="CPUs of each pod: 4, 500m.")] = "",
    memory: Annotated[str, typer.Option("--memory", help="Memory of each pod, request and limit: 8Gi.")] = "",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Variable of all pods; repeatable."),
    ] = None,
    data: Annotated[
        str, typer.Option("--data", metavar="SET:/PATH", help="SampleSet to wait for, and its mount path.")
    ] = "",
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="PATH", help="Path where the program stores checkpoints.")
    ] = "",
    backoff_limit: Annotated[
        int | None, typer.Option("--backoff-limit", help="Restarts after failures of the program.")
    ] = None,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="Delete the job this long after its end: 1h, 2d.")
    ] = "",
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="TIME", help="Longest duration of the job: 30m, 12h.")
    ] = "",
    network: Annotated[str, typer.Option("--network", help="PodIP (the default), Service or Host.")] = "",
    follow_: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Print the output of the pods until the job has ended."),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the manifest as YAML, and create nothing.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Create a job and follow it to its end: exit code 0 when it completes, 1 when it fails.

    Ctrl-C ends the command, not the job. Several workers without GPUs and servers communicate with gloo
    (PADDLE_DISTRI_BACKEND), unless --env sets another backend.

    [bold]Examples[/bold]

    [cyan]paddlewheel job run --image team/train:1 --workers 2 -- python train.py --epochs 3[/cyan]  on CPUs

    [cyan]paddlewheel job run --image team/train:1 --workers 4 --gpus 8 --data imagenet:/data[/cyan]  on GPUs

    [cyan]paddlewheel job run --image team/ctr:1 --servers 2 --workers 4 --no-follow[/cyan]  only create it

    [cyan]paddlewheel job run --image team/train:1 --dry-run > job.yaml[/cyan]  print a manifest to edit
    """
    asked = TrainingJob(
        name=name or generated_name(image), image=image, command=tuple(command or ()),
        namespace=where.namespace or "default",
        workers=workers, servers=servers, gpus=gpus, cpu=cpu, memory=memory, env=_variables(env or ()),
        data=data, checkpoint=checkpoint, backoff_limit=backoff_limit, ttl=ttl or None,
        deadline=deadline or None, network=network,
    )  # fmt: skip
    # The options are checked before a cluster is asked for anything.
    manifest = _checked(asked.manifest)
    manifest["metadata"]["namespace"] = where.namespace_of_manifests if dry_run else where.current_namespace
    if dry_run:
        _print_manifest(manifest, output)
        return
    if follow_:
        _print_end(asyncio.run(while_read(_followed(where.target, manifest, output))), output)
    else:
        _print_created(asyncio.run(_created(where.target, manifest)), output)


def generated_name(image: str) -> str:
    """A name such as `train-x7k2p` for the image `registry.example.com/team/train:1`."""
    base = image.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    kept = re.sub(r"[^a-z0-9]+", "-", base)[:40].strip("-") or "job"
    return f"{kept}-{random_end()}"


def _variables(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise typer.BadParameter(
                f"{word!r} has no value: write NAME=VALUE, as in EPOCHS=3", param_hint="--env"
            )
        if name in found:
            raise typer.BadParameter(f"{name} is given twice: keep one value", param_hint="--env")
        found[name] = value
    return found


def _checked(make: Callable[[], T]) -> T:
    """Call the SDK; an error about a parameter becomes an error about the option."""
    try:
        return make()
    except InvalidArgument as error:
        option = f"--{error.parameter.replace('_', '-')}"
        raise typer.BadParameter(f"{error.problem}; {error.remedy}", param_hint=option) from None


async def _followed(where: Target, manifest: Object, output: Format) -> Object:
    async with where.connected() as api:
        job = await create(api, manifest)
        if output is Format.TEXT:
            typer.echo(f"{key_of(job)} created; Ctrl-C ends this command, not the job", err=True)
        return await follow(api, job, output)


async def _created(where: Target, manifest: Object) -> Object:
    async with where.connected() as api:
        return await create(api, manifest)


async def create(api: Cluster, manifest: Object) -> Object:
    """Create a job. Raises Permanent with what to do."""
    key = key_of(manifest)
    try:
        return await api.create(PADDLE_JOBS, manifest)
    except AlreadyExists:
        advice = f"choose another --name, or `paddlewheel job delete {key}`"
        raise Permanent("JobExists", f"there is a PaddleJob {key} already: {advice}") from None
    except NotFound:
        # The kind or the namespace is missing. A missing kind raises here.
        await list_all(api, PADDLE_JOBS, key.namespace)
    advice = f"`kubectl create namespace {key.namespace}`, or another --namespace"
    raise Permanent("NoSuchNamespace", f"there is no namespace {key.namespace}: {advice}")


def _print_manifest(manifest: Object, output: Format) -> None:
    if output is Format.JSON:
        print_json(manifest)
    else:
        print_line(yaml.safe_dump(manifest, sort_keys=False).rstrip())


def _print_created(job: Object, output: Format) -> None:
    if output is Format.JSON:
        print_json(job)
        return
    key = key_of(job)
    print_line(f"{key} created; `paddlewheel logs {key} --follow` prints the output of its pods")


def _print_end(job: Object, output: Format) -> None:
    """Print how a job ended. Raises an error when the job has failed, so that the exit code is 1."""
    if output is Format.JSON:
        print_json(job)
        raise typer.Exit(0 if has_completed(job) else 1)
    if not has_completed(job):
        raise Permanent("JobFailed", f"{key_of(job)}: {ending(job)}")
    print_foreign(f"{key_of(job)}: {ending(job)}")
