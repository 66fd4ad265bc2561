"""`paddlewheel data`: show data sets and their caches, and run operations on them without YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from paddlewheel.cli import data_tables as tables
from paddlewheel.cli.data_create import create
from paddlewheel.cli.data_runs import SUCCEEDED, ending, follow, is_final, manifest, runs_of, terms
from paddlewheel.cli.explain import print_explanation
from paddlewheel.cli.explain_data import explain_sample_set
from paddlewheel.cli.listing import print_objects
from paddlewheel.cli.output import (
    Format,
    Output,
    confirm,
    print_foreign,
    print_json,
    print_line,
    while_read,
)
from paddlewheel.cli.progress import progress_reporter
from paddlewheel.cli.table import print_page
from paddlewheel.cli.target import Target, Where, find, list_all, on_cluster
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of, uid_of
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import SAMPLE_JOBS, SAMPLE_SETS, Object

app = typer.Typer(
    add_completion=False,
    help="""Data sets (SampleSet): show their state and caches; copy, warm, evict and remove data.

[bold]Examples[/bold]

[cyan]paddlewheel data create imagenet --from s3://... --engine volume[/cyan]  copy a bucket into a new set

[cyan]paddlewheel data list -A[/cyan]  every data set, its size and the cached part

[cyan]paddlewheel data show team-a/imagenet[/cyan]  conditions, nodes and the newest runs of one

[cyan]paddlewheel data sync imagenet --update[/cyan]  copy new and changed files of the source

[cyan]paddlewheel data warm imagenet --path train[/cyan]  load it onto the nodes

[cyan]paddlewheel data explain imagenet[/cyan]  why it is not ready, and what to do
""",
    no_args_is_help=True,
)


app.command("create")(create)


class Strategy(StrEnum):
    """`warmupOptions.strategyName`."""

    SEQUENCE = "sequence"
    RANDOM = "random"
    SAMPLER = "sampler"


Name = Annotated[str, typer.Argument(help="The SampleSet: name, or namespace/name.", metavar="SET")]
Paths = Annotated[
    list[str] | None,
    typer.Option("--path", help="Path below the root of the set; repeatable; default: the whole set."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Follow = Annotated[
    bool, typer.Option("--follow/--no-follow", help="Show the progress, until the run has ended.")
]
After = Annotated[
    list[str] | None,
    typer.Option("--after", metavar="RUN", help="Start after this run of the set has succeeded; repeatable."),
]
Priority = Annotated[
    int,
    typer.Option(
        "--priority",
        help="The run with the highest number goes first, when runs exclude each other.",
    ),
]
Ttl = Annotated[
    int | None,
    typer.Option(
        "--ttl",
        metavar="SECONDS",
        min=0,
        help="Delete the run this long after its end.",
        show_default="never",
    ),
]


@app.command("list")
@on_cluster(lists=True)
def list_(
    where: Where,
    output: Output = Format.TEXT,
) -> None:
    """List data sets with phase, ready partitions, size and cached size."""
    print_objects(where, SAMPLE_SETS, output, lambda found: tables.sample_sets(found, datetime.now(UTC)))


@app.command("show")
@on_cluster()
def show(
    where: Where,
    sample_set: Name,
    output: Output = Format.TEXT,
) -> None:
    """Show state, conditions, cache of each node, and the newest runs of a data set."""
    found, runs = asyncio.run(_found(where.key(sample_set), where.target))
    if output is Format.JSON:
        print_json({**found, "runs": runs})
        return
    print_page(tables.sample_set(found, runs, datetime.now(UTC)))


@app.command("explain")
@on_cluster()
def explain(
    where: Where,
    sample_set: Name,
    output: Output = Format.TEXT,
) -> None:
    """Explain the state of a data set with one reason, and show what to do about it."""
    found, runs = asyncio.run(_found(where.key(sample_set), where.target))
    print_explanation(explain_sample_set(found, runs), output)


@app.command("sync")
@on_cluster()
def sync(
    where: Where,
    sample_set: Name,
    source: Annotated[
        str,
        typer.Option(
            "--source", help="Source, such as s3://BUCKET.ENDPOINT/PREFIX; default: the source of the set."
        ),
    ] = "",
    secret: Annotated[
        str,
        typer.Option("--secret", help="Secret with the keys of the source; default: the Secret of the set."),
    ] = "",
    to: Annotated[str, typer.Option("--to", help="Directory below the set's root.")] = "",
    include: Annotated[str, typer.Option("--include", help="Pattern of keys to copy.")] = "",
    exclude: Annotated[str, typer.Option("--exclude", help="Pattern of keys to leave out.")] = "",
    update: Annotated[
        bool, typer.Option("--update", help="Replace files that the source has newer.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete files of the set that are missing in the source.")
    ] = False,
    bandwidth: Annotated[
        int,
        typer.Option("--bandwidth", metavar="MBIT", min=0, help="Mbit/s of all nodes together; 0: no limit."),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list and count.")] = False,
    yes: Yes = False,
    after: After = None,
    priority: Priority = 0,
    ttl: Ttl = None,
    follow_: Follow = True,
    output: Output = Format.TEXT,
) -> None:
    """Copy new files of a source into a data set, with all its nodes. Asks before it deletes.

    Ctrl-C ends the command, not the run. To end the run, use `data cancel`.

    [bold]Examples[/bold]

    [cyan]paddlewheel data sync imagenet --update --bandwidth 400[/cyan]

    [cyan]paddlewheel data sync imagenet --source s3://new.s3.example.com/b --secret b-keys --to b[/cyan]
    """
    options = {
        "source": source, "destination": to, "include": include, "exclude": exclude, "update": update,
        "delete-dst": delete, "bwlimit": bandwidth, "dry": dry_run,
    }  # fmt: skip
    key = where.key(sample_set)
    if delete and not (dry_run or yes):
        place, of = f"{key}/{to}" if to else key, source or "its source"
        confirm(f"Delete all files of {place} that are missing in {of}, for all users of the set?")
    asked = _Request(key, where.target, output, is_followed=follow_, terms=terms(after, priority, ttl))
    _run(asked, "sync", options, secret)


@app.command("warm")
@on_cluster()
def warm(
    where: Where,
    sample_set: Name,
    path: Paths = None,
    strategy: Annotated[
        Strategy | None,
        typer.Option(
            help="Order; sampler: partition i gets the files of rank i of a DistributedBatchSampler.",
            show_default="sequence",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=0, help="For --strategy sampler: its batch_size.")
    ] = 0,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="For --strategy sampler: shuffle.")] = False,
    epoch: Annotated[
        int, typer.Option("--epoch", min=0, help="For --strategy sampler: the epoch of the shuffle.")
    ] = 0,
    extension: Annotated[
        list[str] | None,
        typer.Option(
            "--extension",
            help="For --strategy sampler: the extensions of its DatasetFolder, e.g. .npy; default: images.",
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option("--threads", min=0, help="Concurrent reads on each node; 0: 50.")
    ] = 0,
    after: After = None,
    priority: Priority = 0,
    ttl: Ttl = None,
    follow_: Follow = True,
    output: Output = Format.TEXT,
) -> None:
    """Load a data set onto its nodes; each node loads its own share.

    Ctrl-C ends the command, not the run. To end the run, use `data cancel`.

    [bold]Example[/bold]

    [cyan]paddlewheel data warm team-a/imagenet --path train --path val[/cyan]

    [cyan]paddlewheel data warm imagenet --strategy sampler --batch-size 64 --shuffle --epoch 1[/cyan]
    """
    if (strategy is Strategy.SAMPLER) != bool(batch_size):
        raise typer.BadParameter(
            "--strategy sampler needs --batch-size, and --batch-size needs --strategy sampler"
        )
    sampler: dict[str, Any] | None = (
        {"batchSize": batch_size, "shuffle": shuffle, "epoch": epoch} if batch_size else None
    )
    if extension:
        if sampler is None:
            raise typer.BadParameter("--extension needs --strategy sampler")
        sampler["extensions"] = extension
    options = {
        "paths": path or [], "strategyName": str(strategy or ""), "threads": threads, "sampler": sampler,
    }  # fmt: skip
    key = where.key(sample_set)
    asked = _Request(key, where.target, output, is_followed=follow_, terms=terms(after, priority, ttl))
    _run(asked, "warmup", options)


@app.command("remove")
@on_cluster()
def remove(
    where: Where,
    sample_set: Name,
    path: Annotated[list[str], typer.Argument(help="Paths below the set's root.", metavar="PATH...")],
    yes: Yes = False,
    after: After = None,
    priority: Priority = 0,
    ttl: Ttl = None,
    follow_: Follow = True,
    output: Output = Format.TEXT,
) -> None:
    """Delete files and directories of a data set permanently. Asks for confirmation.

    [bold]Example[/bold]

    [cyan]paddlewheel data remove imagenet old tmp/files[/cyan]
    """
    key = where.key(sample_set)
    if not yes:
        confirm(f"Remove {', '.join(path)} from {key}, for all users of the set?")
    asked = _Request(key, where.target, output, is_followed=follow_, terms=terms(after, priority, ttl))
    _run(asked, "rmr", {"paths": path})


@app.command("evict")
@on_cluster()
def evict(
    where: Where,
    sample_set: Name,
    cache: Annotated[
        list[str] | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Only the cache with this path in spec.cache.levels; repeatable; default: all caches.",
        ),
    ] = None,
    after: After = None,
    priority: Priority = 0,
    ttl: Ttl = None,
    follow_: Follow = True,
    output: Output = Format.TEXT,
) -> None:
    """Drop a data set from the caches of its nodes, or from some of the caches. Never deletes data.

    The files stay in the data set and in the store; writes that are not uploaded yet stay on their nodes.
    Files that are read afterwards come from the store and are cached again; `data warm` loads all of them.
    To delete files, use `data remove`.

    [bold]Examples[/bold]

    [cyan]paddlewheel data evict team-a/imagenet[/cyan]

    [cyan]paddlewheel data evict imagenet --cache /dev/shm[/cyan]  free memory, and keep the files on disks
    """
    key = where.key(sample_set)
    asked = _Request(key, where.target, output, is_followed=follow_, terms=terms(after, priority, ttl))
    _run(asked, "clear", {"paths": cache or []})


@app.command("cancel")
@on_cluster()
def cancel(
    where: Where,
    run: Annotated[str, typer.Argument(help="The SampleJob: name, or namespace/name.", metavar="RUN")],
    output: Output = Format.TEXT,
) -> None:
    """Cancel a run by deleting its SampleJob. Other runs of the set continue; a run that has ended stays.

    [bold]Example[/bold]

    [cyan]paddlewheel data cancel imagenet-sync-x7k2p[/cyan]
    """
    key = where.key(run)
    asyncio.run(_cancelled(key, where.target))
    if output is Format.JSON:
        print_json({"run": str(key), "action": "delete"})
        return
    print_line(f"{key} is being cancelled and deleted")


# Reading


async def _found(key: Key, where: Target) -> tuple[Object, list[Object]]:
    async with where.connected() as api:
        found = await find(api, SAMPLE_SETS, key)
        return found, runs_of(found, await list_all(api, SAMPLE_JOBS, key.namespace))


# Changing


@dataclass(frozen=True)
class _Request:
    """The data set to work on, the terms of the run (see `terms`), and the format of the output."""

    key: Key
    where: Target
    output: Format
    is_followed: bool
    terms: Mapping[str, Any]


def _run(asked: _Request, type_: str, options: Mapping[str, Any], secret: str = "") -> None:
    run = asyncio.run(while_read(_started(asked, type_, options, secret)))
    if asked.output is Format.JSON:
        print_json(run)
    elif not asked.is_followed:
        print_line(f"{key_of(run)} created; `paddlewheel data show {asked.key}` shows its progress")
    if asked.is_followed:
        _print_end(run, asked.output)


async def _started(asked: _Request, type_: str, options: Mapping[str, Any], secret: str) -> Object:
    async with asked.where.connected() as api:
        found = await find(api, SAMPLE_SETS, asked.key)
        run = await api.create(SAMPLE_JOBS, manifest(found, type_, options, asked.terms, secret=secret))
        if not asked.is_followed:
            return run
        # Scripts get this line too: an interrupted script has to know which run it started.
        typer.echo(f"{key_of(run)} created; Ctrl-C ends this command, not the run", err=True)
        with progress_reporter(str(key_of(run)), quiet=asked.output is Format.JSON) as report:
            return await follow(api, run, report)


def _print_end(run: Object, output: Format) -> None:
    """Print how a run ended. Raises an error when the run has failed, so that the exit code is 1."""
    has_succeeded = (run.get("status") or {}).get("phase") == SUCCEEDED
    if output is Format.JSON:
        raise typer.Exit(0 if has_succeeded else 1)
    if not has_succeeded:
        raise Permanent("RunFailed", f"{key_of(run)}: {ending(run)}")
    print_foreign(f"{key_of(run)}: {ending(run)}")


async def _cancelled(key: Key, where: Target) -> None:
    async with where.connected() as api:
        run = await find(api, SAMPLE_JOBS, key)
        if is_final(run):
            advice = f"to delete its record: kubectl -n {key.namespace} delete samplejob {key.name}"
            raise Permanent("RunEnded", f"{key} has ended, nothing was changed ({ending(run)}); {advice}")
        await api.delete(SAMPLE_JOBS, key, uid=uid_of(run))
