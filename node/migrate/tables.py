"""Numbers, names and tables as text of a terminal."""

from collections.abc import Collection, Sequence
from typing import Final

NAME_SHOWN: Final = 60
"""The most characters of a name in a table."""

BAR: Final = 30
"""The characters of a progress bar."""

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def shown(name: str) -> str:
    """Return a name on one line, without control characters, and shortened."""
    plain = name if name.isprintable() else repr(name)
    return plain if len(plain) <= NAME_SHOWN else plain[: NAME_SHOWN - 1] + "…"


def octets(number: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return ""


def amount(number: float) -> str:
    """Return a rate: with one decimal below 10."""
    return f"{number:,.1f}" if 0 < abs(number) < 10 else f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """Return a time span; a dash if it is not known."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def bar(done: float) -> str:
    """Return a progress bar.   done: 0 to 1."""
    full = int(min(1.0, max(0.0, done)) * BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] {min(1.0, max(0.0, done)):4.0%}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table.   right: numbers of the columns that are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    found = []
    for row in (head, *rows):
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        found.append("  ".join(cells).rstrip())
    return found
