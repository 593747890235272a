"""The evidence of a migration: for each queue and end, what was there and came in is what went out and waits.

    before + came = went + waiting + not accounted for

*Carried* is what left the queue at the source since its shovel was made; *more* is what came in at the target beside
that: messages that came twice, and those that clients published there. *Twice* is how many of these came twice at most:
a message that comes twice was delivered twice by the source, which counts that.
"""

from dataclasses import dataclass
from typing import Final

from node.catalogue.records import Json
from node.migrate.counts import Account, Side
from node.migrate.history import Carried, History
from node.migrate.queues import Key
from node.migrate.tables import shown, table

ENDS: Final[tuple[tuple[Side, str], ...]] = (("rabbitmq", "RabbitMQ"), ("fluffle", "Fluffle"))


@dataclass(frozen=True, slots=True)
class Line:
    """One queue at both ends."""

    key: Key
    rabbitmq: Account
    fluffle: Account
    carried: Carried

    @property
    def is_even(self) -> bool:
        """True if all messages at both ends are accounted for."""
        return not self.rabbitmq.unexplained and not self.fluffle.unexplained

    @property
    def verdict(self) -> str:
        """The judgement of the counts in a few words."""
        if not (self.rabbitmq.is_counted or self.fluffle.is_counted):
            is_idle = not (self.rabbitmq.begin or self.fluffle.waiting or self.rabbitmq.waiting)
            return "even" if is_idle else "not counted"
        if self.is_even:
            return "even"
        found = []
        for account, name in ((self.rabbitmq, "RabbitMQ"), (self.fluffle, "Fluffle")):
            if account.unexplained > 0:
                found.append(f"{account.unexplained:,} unaccounted at {name}")
            elif account.unexplained < 0:
                found.append(f"{-account.unexplained:,} uncounted came to {name}")
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class Report:
    """All queues that were moved, and the times of the stages."""

    lines: tuple[Line, ...]
    times: tuple[tuple[str, str], ...]
    left_out: int

    @property
    def is_even(self) -> bool:
        """True if everything is accounted for."""
        return all(line.verdict == "even" for line in self.lines)


def report(history: History) -> Report:
    """Return the evidence that a history has."""
    lines = []
    for key in sorted(history.moved):
        at = {side: history.accounts.get((side, key), Account()) for side, _ in ENDS}
        lines.append(Line(key, at["rabbitmq"], at["fluffle"], history.carried(key)))
    return Report(tuple(lines), tuple(history.times), history.left_out)


_HEAD: Final = ("vhost", "queue", "end", "before", "came", "went", "waiting", "carried", "more", "twice", "")


def report_text(found: Report, at: str) -> str:
    """Return the report as text, each line ended.   at: the time, as text."""
    lines = [f"Migration, as of {at}", ""]
    lines += [f"  {when}  {what}" for when, what in found.times]
    if found.left_out:
        lines.append(f"  {found.left_out:,} objects were not imported: the plan lists them")
    lines += ["", "For each queue at each end: before + came = went + waiting", ""]
    rows: list[tuple[str, ...]] = []
    total = {side: Account() for side, _ in ENDS}
    for line in found.lines:
        for (side, name), account in zip(ENDS, (line.rabbitmq, line.fluffle), strict=True):
            _add(total[side], account)
            is_first = side == "rabbitmq"
            rows.append(
                (
                    shown(line.key[0]) if is_first else "",
                    shown(line.key[1]) if is_first else "",
                    *_cells(name, account),
                    *(("", "", "") if is_first else tuple(f"{each:,}" for each in line.carried)),
                    line.verdict if is_first else _restarts(line),
                )
            )
    for number, (side, name) in enumerate(ENDS):
        first = "all" if not number else ""
        rows.append((first, "", *_cells(name, total[side]), *_sums(found, number), ""))
    lines += table(_HEAD, rows, right=range(3, 10))
    lines += ["", _conclusion(found)]
    return "".join(f"{line}\n" for line in lines)


def _sums(found: Report, number: int) -> tuple[str, str, str]:
    if not number:
        return "", "", ""
    columns = zip(*(line.carried for line in found.lines), strict=True) if found.lines else ((0,), (0,), (0,))
    carried, more, twice = (f"{sum(column):,}" for column in columns)
    return carried, more, twice


def _cells(name: str, account: Account) -> tuple[str, ...]:
    return (
        name,
        f"{account.begin:,}",
        f"{account.arrived:,}",
        f"{account.went:,}",
        f"{account.waiting:,}",
    )


def _restarts(line: Line) -> str:
    count = line.rabbitmq.restarts + line.fluffle.restarts
    return f"counters began anew {count:,} times" if count else ""


def _add(total: Account, account: Account) -> None:
    total.before = total.begin + account.begin
    total.came += account.arrived
    total.went += account.went
    total.waiting += account.waiting


def _conclusion(found: Report) -> str:
    if not found.lines:
        return "No queue was moved yet."
    uneven = [line for line in found.lines if line.verdict != "even"]
    if not uneven:
        return f"All {len(found.lines):,} queues are even: nothing is unaccounted for."
    return (
        f"{len(uneven):,} of {len(found.lines):,} queues are not even. Counters are some seconds late while messages "
        "move; expired, dropped and purged messages leave no count, and dead letters come in without one."
    )


def report_json(found: Report, at: str) -> dict[str, Json]:
    """Return the report as JSON."""
    return {
        "at": at,
        "is_even": found.is_even,
        "times": [{"at": when, "what": what} for when, what in found.times],
        "left_out": found.left_out,
        "queues": [
            {
                "vhost": line.key[0],
                "name": line.key[1],
                "rabbitmq": _account_json(line.rabbitmq),
                "fluffle": _account_json(line.fluffle),
                "carried": line.carried.messages,
                "more": line.carried.more,
                "twice": line.carried.twice,
                "verdict": line.verdict,
            }
            for line in found.lines
        ],
    }


def _account_json(account: Account) -> Json:
    return {
        "before": account.begin,
        "came": account.arrived,
        "went": account.went,
        "waiting": account.waiting,
        "unaccounted": account.unexplained,
        "redelivered": account.redelivered,
        "counters_restarted": account.restarts,
    }
