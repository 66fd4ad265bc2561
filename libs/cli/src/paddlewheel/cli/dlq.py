"""`paddlewheel dlq`: show, replay and delete messages that a consumer could not handle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddlewheel.bus.admin.inspect import Inspector, unread_replays
from paddlewheel.bus.dead_letters import DeadLetter, DeadLetterBox
from paddlewheel.cli import letters
from paddlewheel.cli.on_bus import operated
from paddlewheel.cli.output import Format, Output, confirm, print_foreign, print_json, print_line
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.table import Table, print_table
from paddlewheel.cli.target import Where, on_cluster
from paddlewheel.core.errors import NotFound, Permanent, Retry

app = typer.Typer(
    add_completion=False,
    help="""Messages that a consumer could not handle (dead letters).

A message is parked with its payload, headers, error and attempts when its handler rejects it permanently or
has failed too often. Inspect it, fix the cause, then replay it: only the consumer that failed gets it again.

[bold]Examples[/bold]

[cyan]paddlewheel dlq list[/cyan]  all dead letters, oldest first

[cyan]paddlewheel dlq show 17[/cyan]  the error, all headers and the payload

[cyan]paddlewheel dlq replay 17 18[/cyan]  or [cyan]--durable trigger-controller-datasets --all[/cyan]

[cyan]paddlewheel dlq drop 17 --yes[/cyan]  delete it
""",
    no_args_is_help=True,
)

Numbers = Annotated[
    list[int] | None,
    typer.Argument(help="Sequence numbers, as `dlq list` shows them.", min=1, metavar="N..."),
]
Durable = Annotated[str, typer.Option("--durable", help="Only dead letters of this consumer.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters, or with --durable all of that consumer.")]

_REPLAY_TIMEOUT_SECONDS = 3.0
"""A consumer that is running has taken a replayed message by then."""
_REPLAY_INTERVAL_SECONDS = 0.25

Act = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class _Choice:
    """The selected dead letters: by number, or all, or all of a consumer."""

    numbers: Sequence[int] | None
    durable: str = ""

    async def found_in(self, box: DeadLetterBox) -> Sequence[int]:
        if self.numbers is not None:
            return self.numbers
        async with aclosing(box.list(self.durable or None)) as found:
            return [letter.sequence async for letter in found]


@dataclass(frozen=True)
class _Outcome:
    """The result for one letter; `problem` is "" on success."""

    sequence: int
    problem: str = ""


@app.command("list")
@on_cluster(namespaced=False)
def dlq_list(where: Where, durable: Durable = "", output: Output = Format.TEXT) -> None:
    """List dead letters, oldest first."""
    asyncio.run(_list(where, durable, output))


@app.command("show")
@on_cluster(namespaced=False)
def dlq_show(
    where: Where,
    number: Annotated[int, typer.Argument(help="Sequence number, as `dlq list` shows it.", min=1)],
    output: Output = Format.TEXT,
) -> None:
    """Show one dead letter: why it was parked, its headers, its payload."""
    asyncio.run(_show(where, number, output))


@app.command("replay")
@on_cluster(namespaced=False)
def dlq_replay(
    where: Where,
    numbers: Numbers = None,
    durable: Durable = "",
    all_: All = False,
    output: Output = Format.TEXT,
) -> None:
    """Deliver messages again, only to the consumer that failed.

    A message waits for the other messages of its object. A message that fails again is parked again.
    """
    choice = _choice(numbers, durable, all_)
    _finish(asyncio.run(_replay(where, choice, output)), "replayed", output)


@app.command("drop")
@on_cluster(namespaced=False)
def dlq_drop(
    where: Where,
    numbers: Numbers = None,
    durable: Durable = "",
    all_: All = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Delete messages. Asks for confirmation."""
    choice = _choice(numbers, durable, all_)
    if not yes:
        # Ask outside of the event loop: inside, Ctrl-C does not reach a prompt.
        found = asyncio.run(_chosen(where, choice))
        _ask(found)
        choice = _Choice(found)
    _finish(asyncio.run(_drop(where, choice, output)), "dropped", output)


def _choice(numbers: Sequence[int] | None, durable: str, all_: bool) -> _Choice:
    if numbers and (durable or all_):
        raise typer.BadParameter("give sequence numbers or --all, not both", param_hint="N...")
    if not numbers and not all_:
        more = f"add --all for all of {durable}" if durable else "or [--durable NAME] --all"
        raise typer.BadParameter(f"give sequence numbers as `dlq list` shows them, {more}", param_hint="N...")
    return _Choice(tuple(dict.fromkeys(numbers)) if numbers else None, durable)


async def _list(where: Where, durable: str, output: Format) -> None:
    async with operated(where) as bus, aclosing(bus.dead_letters.list(durable or None)) as found:
        if output is Format.JSON:
            print_json([letters.as_json(letter) async for letter in found])
            return
        _print_table([letters.row(letter, datetime.now(UTC)) async for letter in found], durable)


def _print_table(rows: Sequence[Sequence[str]], durable: str) -> None:
    if not rows:
        print_line(f"no dead letters of {durable}" if durable else "no dead letters")
        return
    table = Table(
        ("sequence", "durable", "age", "reason", "attempts", "subject", "first bytes"),
        wraps={"subject", "first bytes"},
        drops=("first bytes", "subject", "attempts", "age"),
        right={"sequence", "age", "attempts"},
    )
    for cells in rows:
        table.add_row(*cells)
    print_table(table)


async def _show(where: Where, number: int, output: Format) -> None:
    async with operated(where) as bus:
        letter = await _got(bus.dead_letters, number)
    if output is Format.JSON:
        print_json(letters.as_json(letter))
        return
    for line in letters.page(letter, datetime.now(UTC)):
        print_foreign(line)


async def _got(box: DeadLetterBox, number: int) -> DeadLetter:
    try:
        return await box.get(number)
    except NotFound as error:
        raise NotFound(f"{error} does not exist; `paddlewheel dlq list` lists the dead letters") from None


async def _replay(where: Where, choice: _Choice, output: Format) -> list[_Outcome]:
    async with operated(where) as bus:
        numbers = await choice.found_in(bus.dead_letters)
        with progress_reporter("replay", quiet=output is Format.JSON or len(numbers) < 2) as report:
            outcomes = await _each(numbers, bus.dead_letters.replay, report)
        with suppress(Retry):
            await _warn_of_unread(bus.inspect)
    return outcomes


async def _warn_of_unread(bus: Inspector) -> None:
    """Warn of replayed messages that no process takes: the consumer of a removed service still exists."""
    until = asyncio.get_running_loop().time() + _REPLAY_TIMEOUT_SECONDS
    while left := unread_replays(await bus.status()):
        if asyncio.get_running_loop().time() > until:
            for replays in left:
                typer.echo(letters.unread(replays), err=True)
            return
        await asyncio.sleep(_REPLAY_INTERVAL_SECONDS)


async def _chosen(where: Where, choice: _Choice) -> Sequence[int]:
    async with operated(where) as bus:
        return await choice.found_in(bus.dead_letters)


async def _drop(where: Where, choice: _Choice, output: Format) -> list[_Outcome]:
    async with operated(where) as bus:
        numbers = await choice.found_in(bus.dead_letters)
        with progress_reporter("drop", quiet=output is Format.JSON or len(numbers) < 2) as report:
            return await _each(numbers, bus.dead_letters.drop, report)


def _ask(numbers: Sequence[int]) -> None:
    if not numbers:
        return
    what = f"dead letter {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} dead letters"
    confirm(f"Delete {what}?")


async def _each(numbers: Sequence[int], act: Act, report: Report) -> list[_Outcome]:
    """Act on one after the other; stop when the bus does not answer."""
    outcomes: list[_Outcome] = []
    for number in numbers:
        report(f"{number}, {len(outcomes) + 1} of {len(numbers)}", len(outcomes) / len(numbers))
        try:
            await act(number)
            outcomes.append(_Outcome(number))
        except NotFound:
            outcomes.append(_Outcome(number, "no such dead letter"))
        except Permanent as error:
            outcomes.append(_Outcome(number, str(error)))
        except Retry as error:
            rest = numbers[len(outcomes) + 1 :]
            outcomes.append(_Outcome(number, f"{error}; the dead letter is unchanged: try again"))
            return outcomes + [_Outcome(left, "not tried") for left in rest]
    report(f"{len(numbers)} of {len(numbers)}", 1.0)
    return outcomes


def _finish(outcomes: Sequence[_Outcome], verb: str, output: Format) -> None:
    """Print the results; exit code 1 when one has a problem."""
    failed = [outcome for outcome in outcomes if outcome.problem]
    if output is Format.JSON:
        print_json([asdict(outcome) | {"done": not outcome.problem} for outcome in outcomes])
    else:
        print_line(
            f"{verb} {len(outcomes) - len(failed)} of {len(outcomes)}" if outcomes else "no dead letters"
        )
        for outcome in failed:
            typer.echo(f"{outcome.sequence}: {outcome.problem}", err=True)
    if failed:
        raise typer.Exit(1)
