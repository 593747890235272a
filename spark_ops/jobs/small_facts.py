"""Rows of a small window are reduced to facts about minutes on the driver, without Spark.

The facts are those of `minute_facts`, and `SHAPES` has the columns of both. Tests compare the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from spark_ops.health.facts import EventFact, LinkMinute, NodeMinute, ReplicaMinute, RowsSeen
from spark_ops.jobs.files import SKEW_ERR_MS_MAX, VERSIONS
from spark_ops.jobs.minute_facts import SHAPES, TOLD_EVENTS
from spark_ops.jobs.small_columns import Groups, Longs, Numbers, are, codes, numbers
from spark_ops.telemetry.schema import ENVELOPE, Kind

if TYPE_CHECKING:
    from spark_ops.jobs.small_columns import Bools

CLASSES: Final = {"node": NodeMinute, "queue": ReplicaMinute, "link": LinkMinute}


@dataclass(frozen=True, slots=True)
class Flat:
    """The facts of a kind.

    table: the last row of each process in each minute; the facts of a process are adjacent, in order of minutes.
    minute: counted since 1970.   extremes: the columns `most` and `least` of the kind's shape.
    """

    kind: str
    table: pa.Table
    minute: Longs
    extremes: Mapping[str, Numbers]

    def taken(self, rows: "Longs | Bools") -> "Flat":
        """Return some of the facts, by their positions or by a mask."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        extremes = {name: column.take(at) for name, column in self.extremes.items()}
        return Flat(self.kind, self.table.take(pa.array(at)), self.minute[at], extremes)

    def facts(self) -> list[tuple[tuple[str, ...], Any]]:
        """Return the subject and the fact of each, as the class of the kind."""
        shape, of = SHAPES[self.kind], CLASSES[self.kind]
        extremes = {
            name: [value if known else None for value, known in zip(*_both(column), strict=True)]
            for name, column in self.extremes.items()
        }
        names = [field.name for field in fields(of)]
        found = []
        for at, (row, minute) in enumerate(zip(self.table.to_pylist(), self.minute.tolist(), strict=True)):
            row.update({name: column[at] for name, column in extremes.items()})
            row["minute"], row["boot"] = minute, row["boot_id"]
            _make(row)
            values = {name: row.get(name) for name in names}
            fact = of(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
            found.append((tuple(row[name] for name in shape.keys), fact))
        return found


def _both(column: Numbers) -> tuple[list[Any], list[bool]]:
    return column.values.tolist(), column.known.tolist()


def _make(row: dict[str, Any]) -> None:
    """Add the fields of a fact that are computed from columns of its last row."""
    if "cpu_user_ms_total" in row:
        user, system = row["cpu_user_ms_total"], row["cpu_sys_ms_total"]
        row["cpu_ms_total"] = None if user is None or system is None else user + system
        row["group"] = dict(row["labels"] or ()).get("group")
    if row.get("dead_letters_lost_by") is not None:
        row["dead_letters_lost_by"] = sorted(row["dead_letters_lost_by"])


def within(table: pa.Table, cluster: str, start: int, end: int) -> tuple[pa.Table, Longs]:
    """Return the rows of known versions of a cluster in the minutes [start, end), and the minute of each."""
    version, ts = numbers(table, "v"), numbers(table, "ts")
    skew, error = numbers(table, "skew_ms"), numbers(table, "skew_err_ms")
    is_sure = skew.known & error.known & (error.values <= SKEW_ERR_MS_MAX)
    minute = (ts.values - np.where(is_sure, skew.values, 0)) // 60_000
    kept = ts.known & (minute >= start) & (minute < end) & are(table, "cluster", cluster)
    kept &= version.known & (version.values >= VERSIONS[0]) & (version.values <= VERSIONS[1])
    return table.filter(pa.array(kept)), minute[kept].astype(np.int64)


def too_new(table: pa.Table) -> int:
    """Return the number of rows whose version is unknown, because it is too new."""
    version = numbers(table, "v")
    is_known = version.known & (version.values >= VERSIONS[0]) & (version.values <= VERSIONS[1])
    return int(table.num_rows - is_known.sum())


def reduced(kind: str, rows: pa.Table, minute: Longs) -> Flat:
    """Reduce rows to facts.   minute: of each row. Rows may be in any order and come twice."""
    shape = SHAPES[kind]
    code = codes(rows, (*shape.keys, "boot_id"))
    mono, seq = (_nulls_first(numbers(rows, name)) for name in ("mono_ms", "seq"))
    order = np.lexsort((seq, mono, minute, code))
    _, of_minute = np.unique(code[order] * (1 << 32) + minute[order], return_inverse=True)
    groups = Groups(of_minute.reshape(-1))
    extremes = {}
    for named, reduce in ((shape.most, groups.most), (shape.least, groups.least)):
        for name, source in named.items():
            column = numbers(rows, source.removeprefix("abs(").removesuffix(")")).take(order)
            if source.startswith("abs("):
                column = Numbers(np.abs(column.values.astype(np.int64)), column.known)
            extremes[name] = reduce(column)
    last = order[groups.lasts]
    return Flat(kind, rows.take(pa.array(last)), minute[last], extremes)


def _nulls_first(column: Numbers) -> Longs:
    return np.where(column.known, column.values, -1).astype(np.int64)


def events_of(rows: pa.Table, most: int) -> tuple[EventFact, ...]:
    """Return the events that rules read, each once, in order of time; at most `most`."""
    names = [field.name for field in fields(EventFact)]
    told = pc.or_(
        pc.is_in(rows.column("event"), pa.array(TOLD_EVENTS)),
        pc.fill_null(rows.column("unsynced_promotion"), False),
    )
    found: dict[str, EventFact] = {}
    for row in rows.filter(told).to_pylist():
        # An event without an id gets its row's key as its id.
        own = "/".join(str(row[name]) for name in ("node", "boot_id", "seq") if row[name] is not None)
        name = own if row["event_id"] is None else row["event_id"]
        found.setdefault(name, EventFact(*(row[field] for field in names)))
    return tuple(sorted(found.values(), key=lambda event: (event.ts, event.node, event.event))[:most])


def rows_seen(tables: Mapping[Kind, pa.Table]) -> tuple[RowsSeen, ...]:
    """Return how many rows of each process and kind there are."""
    found = []
    rows = pa.concat_tables([table.select(list(ENVELOPE)) for table in tables.values()])
    rows = rows.filter(pc.is_valid(rows.column("seq")))
    if not rows.num_rows:
        return ()
    keys = ("node", "boot_id", "kind")
    code, seq = codes(rows, keys), numbers(rows, "seq").values
    order = np.lexsort((seq, code))
    code, seq = code[order], seq[order]
    groups = Groups(code)
    is_new = np.append([True], (code[1:] != code[:-1]) | (seq[1:] != seq[:-1]))
    unique = np.add.reduceat(is_new.astype(np.int64), groups.starts)
    sizes = np.diff(np.append(groups.starts, groups.size))
    subjects = rows.select(list(keys)).take(pa.array(order[groups.starts])).to_pylist()
    for at, (first, last) in enumerate(zip(groups.starts, groups.lasts, strict=True)):
        node, boot, kind = (str(subjects[at][key]) for key in keys)
        numbers_seen = int(seq[first]), int(seq[last]), int(unique[at]), int(sizes[at])
        found.append(RowsSeen(node, boot, kind, *numbers_seen))
    return tuple(sorted(found, key=lambda each: (each.node, each.boot, each.kind)))


def in_order(facts: Sequence[Any]) -> list[Any]:
    """Return facts of one subject in order of minutes."""
    return sorted(facts, key=lambda fact: (fact.minute, fact.mono_ms, fact.boot))
