"""Rows of queues get figures that are no plain numbers, a histogram and a map, in which two findings show."""

from typing import Final

from tests.kit.synthetic.telemetry import Row

FINDINGS: Final = {"slow-confirms": "queue-00001", "dead-letters-lost": "queue-00002"}
"""The kinds of the findings, and the queues of which they are told."""


def with_figures(row: Row, start: int) -> Row:
    """Return the row with slow confirms or lost dead letters, if it is of a master of these queues.

    start: the minute, counted since 1970, from which both rise.
    """
    if row["kind"] != "queue" or row["role"] != "master":
        return row
    minute = max(0, row["ts"] // 60_000 - start)
    if row["queue"] == FINDINGS["slow-confirms"]:
        return {**row, "confirm_us": [*([0] * 28), 10 * minute, 0, 0, 0]}
    if row["queue"] == FINDINGS["dead-letters-lost"]:
        return {**row, "dead_letters_lost_total": minute, "dead_letters_lost_by": {"refused": minute}}
    return row
