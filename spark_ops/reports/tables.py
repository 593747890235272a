"""The tables of a report: the same rows in the page, as CSV and as Parquet.

A column that is no figure is text. A spreadsheet may open the CSV, so `escape.csv_text` disarms texts that would be
formulas. Parquet and JSON have every name as it is.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_ops.reports.escape import csv_text
from spark_ops.reports.figures import KINDS, is_number


@dataclass(frozen=True, slots=True)
class Column:
    """A column.   key: in a row.   kind: of `figures.KINDS`, or `text`."""

    key: str
    title: str
    kind: str = "text"

    @property
    def is_figure(self) -> bool:
        return self.kind in KINDS


@dataclass(frozen=True, slots=True)
class Table:
    """A table. The values in its rows are plain: texts, numbers and None."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]


FINDINGS: Final = (
    Column("severity", "Severity"),
    Column("kind", "Finding"),
    Column("node", "Node"),
    Column("to_node", "To node"),
    Column("vhost", "Virtual host"),
    Column("queue", "Queue"),
    Column("cause", "Common cause"),
    Column("share", "Load affected", "share"),
    Column("since", "Since"),
    Column("text", "What was seen"),
    Column("advice", "What to do"),
)
NODES: Final = (
    Column("node", "Node"),
    Column("score", "Score", "score"),
    Column("cpu", "CPU", "share"),
    Column("memory", "Memory", "share"),
    Column("disk", "Disk", "share"),
    Column("fds", "File descriptors", "share"),
    Column("loop_lag_ms", "Loop lag", "ms"),
    Column("masters", "Masters", "count"),
    Column("mirrors", "Mirrors", "count"),
    Column("cpu_before", "CPU before", "share"),
    Column("cpu_after", "CPU after", "share"),
    Column("masters_before", "Masters before", "count"),
    Column("masters_after", "Masters after", "count"),
)
MOVES: Final = (
    Column("n", "#", "count"),
    Column("wave", "Wave", "count"),
    Column("kind", "Move"),
    Column("vhost", "Virtual host"),
    Column("queue", "Queue"),
    Column("from", "From"),
    Column("to", "To"),
    Column("bytes", "Copied", "bytes"),
    Column("est_s", "Takes about", "seconds"),
    Column("reason", "Goal"),
    Column("why", "Why"),
    Column("steps", "Steps"),
)
FORECASTS: Final = (
    Column("node", "Node"),
    Column("resource", "Resource"),
    Column("now", "Now", "decimal"),
    Column("limit", "Limit", "decimal"),
    Column("slope_per_s", "Per second", "decimal"),
    Column("eta_s", "Reached in", "seconds"),
    Column("earliest_s", "At the earliest", "seconds"),
    Column("latest_s", "At the latest", "seconds"),
    Column("r2", "R²", "decimal"),
    Column("why_not", "No forecast because"),
    Column("queues", "Queues behind it"),
)
GOALS: Final = (
    Column("id", "Goal"),
    Column("before", "Before", "decimal"),
    Column("after", "After", "decimal"),
    Column("met", "Met"),
)
GAPS: Final = (Column("node", "Node"), Column("from", "From"), Column("to", "To"))
AFTER_NODES: Final = (
    Column("node", "Node"),
    Column("cpu_before", "Before", "share"),
    Column("cpu_predicted", "Predicted", "share"),
    Column("cpu_expected", "Expected", "share"),
    Column("cpu_measured", "Measured", "share"),
    Column("cpu_error", "Error", "share"),
    Column("masters_before", "Masters before", "count"),
    Column("masters_predicted", "Predicted", "count"),
    Column("masters_measured", "Measured", "count"),
)
AFTER_QUEUES: Final = (
    Column("n", "#", "count"),
    Column("kind", "Move"),
    Column("vhost", "Virtual host"),
    Column("queue", "Queue"),
    Column("from", "From"),
    Column("to", "To"),
    Column("is_arrived", "Arrived"),
    Column("master", "Master now"),
    Column("synced", "Synchronised", "count"),
    Column("cpu_effect_predicted", "CPU predicted", "share"),
    Column("cpu_measured", "CPU measured", "share"),
)


def tables_of(document: dict[str, Any]) -> list[Table]:
    """Return all tables that the report document has rows for."""
    plan, after = document["plan"] or {}, document["after"] or {}
    listed = (
        ("findings", FINDINGS, [{**one["subject"], **one} for one in document["findings"]]),
        ("nodes", NODES, document["nodes"]),
        ("moves", MOVES, plan.get("moves", ())),
        ("goals", GOALS, plan.get("goals", ())),
        ("forecasts", FORECASTS, [_forecast(one) for one in document["forecasts"]]),
        ("gaps", GAPS, (document["coverage"] or {}).get("missing", ())),
        ("after_nodes", AFTER_NODES, after.get("nodes", ())),
        ("after_queues", AFTER_QUEUES, after.get("queues", ())),
    )
    return [table(name, columns, rows) for name, columns, rows in listed if rows]


def table(name: str, columns: tuple[Column, ...], rows: Iterable[dict[str, Any]]) -> Table:
    """Return a table with only the columns' values of the rows."""
    return Table(
        name,
        columns,
        tuple({column.key: _plain(row.get(column.key), column) for column in columns} for row in rows),
    )


def _forecast(one: dict[str, Any]) -> dict[str, Any]:
    band = one.get("band") or (None, None)
    queues = ", ".join(f"{each.get('vhost')} {each.get('queue')}" for each in one.get("queues") or ())
    return {**one, "earliest_s": band[0], "latest_s": band[1], "queues": queues or None}


def _plain(value: Any, column: Column) -> Any:
    if column.is_figure:
        return value if is_number(value) else None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return None if value is None else str(value)


def csv_of(table: Table) -> str:
    """Return CSV with a head line; every text is in quotation marks, so that no country's separator splits it."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow(
            [csv_text(value) if isinstance(value, str) else value for value in _cells(table, row)]
        )
    return out.getvalue()


def _cells(table: Table, row: dict[str, Any]) -> list[Any]:
    return ["" if row[column.key] is None else row[column.key] for column in table.columns]


def write_parquet(table: Table, path: Path) -> None:
    """Write the table as Parquet (zstd); figures are doubles. Raises: ImportError without pyarrow, OSError."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    schema = pyarrow.schema(
        [
            (column.key, pyarrow.float64() if column.is_figure else pyarrow.string())
            for column in table.columns
        ]
    )
    columns = [[_storable(row[column.key]) for row in table.rows] for column in table.columns]
    made = pyarrow.Table.from_arrays(
        [pyarrow.array(values, schema.field(index).type) for index, values in enumerate(columns)],
        schema=schema,
    )
    parquet.write_table(made, path, compression="zstd")


def _storable(value: Any) -> Any:
    """Return a text with surrogates escaped, since UTF-8 cannot hold them; a number as float."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return None if value is None else float(value)
