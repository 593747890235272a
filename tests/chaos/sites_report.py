"""The report of a chaos run over two sites is made of what was recorded, without any I/O. `to_json` is all of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from tests.chaos.report import FaultRecord
from tests.chaos.sites_ledger import Account

ROW = "{at:>9} {kind:19}{text:44}{lasts:>9}{up:>9}{gap:>9}"
HEAD = ROW.format(at="at s", kind="fault", text="", lasts="lasts s", up="up s", gap="no ok s")


@dataclass(slots=True)
class SitesReport:
    """A run.

    minutes: of load that were asked for.   is_drained: consumers had got everything when the run ended.
    skipped: planned faults whose time was over.   returned: publishes that no queue wanted, not even the one in which
    messages wait for the other site.   nacked: publishes that a site refused.   unavailable_s of a fault: the longest
    time without a confirm at a site whose nodes all ran.
    """

    seed: int
    minutes: float
    rate: float
    began_at: str
    commit: str
    machine: str
    kinds: Sequence[str]
    gaps: list[str] = field(default_factory=list)
    skipped: int = 0
    lasted_s: float = 0.0
    is_over: bool = False
    is_drained: bool = False
    returned: int = 0
    nacked: int = 0
    faults: list[FaultRecord] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def confirmed(self) -> int:
        """The number of confirmed messages; one that both sites want counts twice."""
        return sum(sum(account.confirmed.values()) for account in self.accounts)

    @property
    def shows(self) -> bool:
        """Whether each book has messages: without that, nothing lost says nothing."""
        return bool(self.accounts) and all(account.consumed for account in self.accounts)

    @property
    def is_clean(self) -> bool:
        """Whether something was compared, and nothing happened that must not."""
        return (
            self.shows
            and self.is_drained
            and not self.problems
            and all(account.balances for account in self.accounts)
        )

    def to_json(self) -> str:
        """Return all of it."""
        known = {"is_clean": self.is_clean, "confirmed": self.confirmed}
        accounts = [account._asdict() for account in self.accounts]
        return json.dumps({**known, **asdict(self), "accounts": accounts}, indent=1)

    def headline(self) -> str:
        """Return the figures that count, in a line."""
        verdict = "clean" if self.is_clean else "NOT CLEAN" if self.shows else "NOTHING SHOWN"
        lost = sum(account.lost for account in self.accounts)
        again = sum(account.redelivered + account.again + account.waiting_again for account in self.accounts)
        return (
            f"{verdict}{'' if self.is_over else ', interrupted'}: {self.confirmed:,} confirmed, {lost:,} lost, "
            f"{again:,} copies more than once, {len(self.faults):,} faults in {self.minutes:g} min"
        )

    def text(self) -> str:
        """Return the report for a terminal."""
        lines = [
            self.headline(),
            "",
            f"run       {self.began_at}, {self.minutes:g} min of load, {self.lasted_s / 60:.1f} min in all, "
            f"commit {self.commit}, on {self.machine}",
            f"seed      {self.seed}, {self.rate:g} messages/s of each publisher",
            f"faults    {len(self.faults)} done, {self.skipped} planned ones had no time",
            f"refused   {self.nacked:,} publishes by a site, {self.returned:,} that no queue wanted",
            "drained   " + ("yes" if self.is_drained else "NO: something still waited at the end"),
            "",
            *(account.text() for account in self.accounts),
            "",
            f"{'fault':20}{'n':>5}{'no confirm s':>18}{'up again s':>18}   (median, longest)",
        ]
        lines += [f"{kind:20}{count:5}{gap:>18}{up:>18}" for kind, count, gap, up in self.kinds_table()]
        for title, texts in (("not done", self.gaps), ("notes", self.notes), ("problems", self.problems)):
            if texts:
                lines += ["", f"{title}:", *(f"  {text}" for text in texts)]
        return "\n".join(lines) + "\n"

    def kinds_table(self) -> list[tuple[str, int, str, str]]:
        """Return by kind of fault: how many, no confirm at an untouched site, and up again."""
        rows = []
        for kind in sorted({fault.kind for fault in self.faults}):
            faults = [fault for fault in self.faults if fault.kind == kind]
            ups = [fault.up_s for fault in faults if fault.up_s is not None]
            rows.append((kind, len(faults), _spread([fault.unavailable_s for fault in faults]), _spread(ups)))
        return rows


def row(record: FaultRecord) -> str:
    """Return the line about a fault that is printed when it is over."""
    return ROW.format(
        at=f"{record.at_s:.1f}",
        kind=record.kind,
        text=record.text + (f" under {record.under}" if record.under else ""),
        lasts=f"{record.lasts_s:.1f}",
        up="never" if record.up_s is None else f"{record.up_s:.1f}",
        gap=f"{record.unavailable_s:.2f}",
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f}, {max(values):.2f}" if values else "-"
