"""Tables: fitted to a terminal, and one plain line for each row in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from paddlewheel.cli.output import console, print_line, print_styled, visible, visible_lines

_GOOD = ("Ready", "Running", "Succeeded", "Completed", "True", "yes", "ok", "ready", "running")
_BAD = ("Failed", "False", "no", "missing", "ended", "removed")
STYLES = dict.fromkeys(_GOOD, "green") | dict.fromkeys(_BAD, "red")
"""Colours of states, by their first word."""
_GAP = 2
_WRAPPED = 24
"""Characters that a column of free text keeps while others are dropped."""
_NARROWEST = 8


@dataclass
class Table:
    """Columns of text. The first one has the name of the object, and is never cut.

    Attributes:
        columns: their titles; none for a list of properties, whose first column has their names.
        wraps: columns of free text, which are wrapped when the terminal is narrow.
        drops: columns that a narrow terminal does not show, the least important first.
        states: columns whose words are green or red.
        right: columns of numbers.
    """

    columns: Sequence[str]
    title: str = ""
    wraps: Collection[str] = ()
    drops: Sequence[str] = ()
    states: Collection[str] = ()
    right: Collection[str] = ()
    caption: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add_row(self, *cells: str) -> None:
        """Add a row of plain text: no markup, and nothing in it controls the terminal."""
        self.rows.append(tuple(map(visible_lines, cells)))


def properties(title: str, values: Mapping[str, str], states: Collection[str] = ()) -> Table:
    """A table with a row for each property that has a value.

    Args:
        states: names of properties whose values are green or red.
    """
    table = Table((), title, states=states)
    for name, value in values.items():
        if value:
            table.add_row(name, value)
    return table


def print_table(table: Table, out: Console | None = None) -> None:
    """Print to a console, by default standard output."""
    out = out or console()
    # FORCE_COLOR makes every console a terminal, also a pipe.
    if not out.file.isatty():
        for line in _plain(table):
            if out.stderr:
                sys.stderr.write(f"{line}\n")
            else:
                print_line(line)
        return
    if table.title:
        out.print(Text(visible(table.title), "bold"), soft_wrap=True)
    out.print(_fitted(table, out.width))
    if table.caption:
        out.print(Text(visible(table.caption), "dim"), soft_wrap=True)


def print_page(parts: Iterable[Table | str]) -> None:
    """Print tables and lines of text, with an empty line between them."""
    for index, part in enumerate(parts):
        if index:
            print_line("")
        if isinstance(part, Table):
            print_table(part)
        else:
            print_styled(part)


def _plain(table: Table) -> list[str]:
    """Aligned columns, one line for each row, however wide."""
    rows = [tuple(cell.replace("\n", "; ") for cell in row) for row in table.rows]
    lines = [tuple(table.columns), *rows] if table.columns else rows
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        (" " * _GAP).join(_pad(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return [
        *([visible(table.title)] if table.title else ()),
        *aligned,
        *filter(None, [visible(table.caption)]),
    ]


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))


def _fitted(table: Table, width: int) -> RichTable:
    shown, widths = _fit(table, width)
    drawn = RichTable(box=None, show_header=bool(table.columns), pad_edge=False, padding=(0, _GAP, 0, 0))
    for index, space in zip(shown, widths, strict=True):
        title = table.columns[index] if table.columns else ""
        justify = "right" if title in table.right else "left"
        drawn.add_column(title, width=space, overflow="fold", justify=justify)  # type: ignore[arg-type]
    for row in table.rows:
        drawn.add_row(*(Text(row[index], _style(table, row, index)) for index in shown))
    return drawn


def _style(table: Table, row: tuple[str, ...], index: int) -> str:
    named = table.columns[index] if table.columns else row[0] if index else ""
    if named not in table.states:
        return ""
    word = re.match(r"\w*", row[index])
    return STYLES.get(word.group() if word else "", "")


def _fit(table: Table, width: int) -> tuple[list[int], list[int]]:
    """Indexes of the columns that are shown, and their widths."""
    count = len(table.columns) or 2
    natural = [_widest(table, index) for index in range(count)]
    wraps = {i for i in range(count) if (table.columns[i] in table.wraps if table.columns else i == 1)}
    least = [min(n, _WRAPPED) if i in wraps else n for i, n in enumerate(natural)]
    shown = list(range(count))
    for title in table.drops:
        if _total(least[i] for i in shown) <= width:
            break
        shown.remove(table.columns.index(title))
    return shown, _shrunk(shown, natural, wraps, width)


def _shrunk(shown: list[int], natural: list[int], wraps: Collection[int], width: int) -> list[int]:
    """Take width first from columns of free text, then from the others, the widest first."""
    widths = {i: natural[i] for i in shown}
    for among in ([i for i in shown if i in wraps], [i for i in shown if i], shown):
        while (over := _total(widths.values()) - width) > 0:
            wide = sorted((i for i in among if widths[i] > _NARROWEST), key=widths.__getitem__)
            if not wide:
                break
            second = widths[wide[-2]] if len(wide) > 1 else _NARROWEST
            widths[wide[-1]] -= max(1, min(over, widths[wide[-1]] - max(second, _NARROWEST)))
    return [widths[i] for i in shown]


def _total(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + _GAP * (len(listed) - 1)


def _widest(table: Table, index: int) -> int:
    titles = [table.columns[index]] if table.columns else []
    lines = [line for row in table.rows for line in row[index].split("\n")]
    return max(map(cell_len, [*titles, *lines]), default=0)
