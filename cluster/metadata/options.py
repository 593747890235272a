"""The times and sizes of a Raft group."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a Raft group. All members should have the same. Times are in seconds.

    heartbeat_s: how often a leader that has nothing to say is heard of.
    election_min_s, election_max_s: a member that hears no leader for a random time between them asks for votes, if
    nothing tells it earlier that the leader is gone. Two heartbeats may be late: below that, a busy machine changes
    its leader for nothing (ring §3).
    ask_s: about how often a member without a leader asks whether the others would vote for it.
    fallback_s: a leader that hears no majority for so long steps down. Safety does not depend on it.
    stuck_disk_s: how long a write may wait for this member's disk until the disk is taken for stuck, see
    `DiskWatch`.
    command_s: for how long a command may be without an outcome until it is refused.
    visible_s: for how long the answer waits for members that are up and have not applied the command.
    retry_s: after how long a command without an outcome is proposed again.
    compact_min_bytes: a journal below this is never compacted.   compact_entries: one with more entries always is.
    """

    heartbeat_s: float = 0.5
    election_min_s: float = 1.6
    election_max_s: float = 2.6
    ask_s: float = 0.5
    fallback_s: float = 2.0
    stuck_disk_s: float = 1.0
    command_s: float = 5.0
    visible_s: float = 10.0
    retry_s: float = 1.0
    compact_min_bytes: int = 1024 * 1024
    compact_entries: int = 5000
