"""Rows: lines of JSON with the fields that all rows have in common.

Fields that are null are left out. Fields and their types: `spark_ops.telemetry.schema`, which tests check the rows
against.
Source: spark §2.1.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

VERSION: Final = 1

Kind = Literal["node", "queue", "link", "event", "topology"]

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
"""The encoder of rows. It writes only ASCII, so that names that are no proper Unicode can be written too."""


class Moment(NamedTuple):
    """One moment on both clocks.   ts: ms since 1970.   mono_ms: since the start of the broker."""

    ts: int
    mono_ms: int


class Rows:
    """The rows of one start of a broker.

    boot_id: unlike any other.   wall, monotonic: clocks, in seconds.   cluster: its name, which may change.
    skew_ms, skew_err_ms: the present estimate of our clock's offset, see `clocks`.
    """

    def __init__(
        self,
        cluster: str,
        node: str,
        boot_id: str,
        *,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.boot_id = boot_id
        self.skew_ms: int | None = None
        self.skew_err_ms: int | None = None
        self._wall = wall
        self._monotonic = monotonic
        self._started_s = monotonic()
        self._node = node
        self._names = ""
        self.cluster = cluster
        self._counts: Counter[Kind] = Counter()

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self._cluster

    @cluster.setter
    def cluster(self, name: str) -> None:
        self._cluster = name
        self._names = _encode({"cluster": name, "node": self._node, "boot_id": self.boot_id})[1:-1]

    def now(self) -> Moment:
        """Return the present moment."""
        return Moment(round(self._wall() * 1000), round((self._monotonic() - self._started_s) * 1000))

    def line(
        self,
        kind: Kind,
        fields: Mapping[str, Any],
        moment: Moment,
        *,
        interval_ms: int | None = None,
        fixed: str = "",
    ) -> bytes:
        """Return the next row of a kind.   interval_ms: since the one of the same subject before.   fixed: see
        `fragment`.
        """
        number = self._counts[kind]
        self._counts[kind] = number + 1
        skew = ""
        if self.skew_ms is not None:
            skew = f',"skew_ms":{self.skew_ms},"skew_err_ms":{self.skew_err_ms}'
        gap = "" if interval_ms is None else f',"interval_ms":{interval_ms}'
        body = _encode({name: value for name, value in fields.items() if value is not None})
        return (
            f'{{"v":{VERSION},"kind":"{kind}",{self._names},"seq":{number},"ts":{moment.ts},'
            f'"mono_ms":{moment.mono_ms}{skew}{gap}{fixed}{"," if len(body) > 2 else ""}{body[1:]}\n'
        ).encode("ascii")


def fragment(fields: Mapping[str, Any]) -> str:
    """Encode fields as they stand in rows, to be used for many of them."""
    body = _encode({name: value for name, value in fields.items() if value is not None})
    return f",{body[1:-1]}" if len(body) > 2 else ""
