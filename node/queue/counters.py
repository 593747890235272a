"""Counters of one queue and of the disk of messages, which only rise.

Plain integers, bumped once a run or once a batch of the disk, never once a message. `node.client.counters` has
those of channels, exchanges and the node. Source: management §1.1, §5.1.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class QueueCounters:
    """The counters of one queue since it is live on this node, its master; for clients of all nodes, in messages.

    publish: what clients published to it, also what it refused for a length limit; not dead letters.
    deliver … ack: as in `node.client.counters.ChannelCounters`.
    disk_reads, disk_writes: messages whose contents or entries came from the disk, and went there.
    """

    publish: int = 0
    deliver: int = 0
    deliver_no_ack: int = 0
    get: int = 0
    get_no_ack: int = 0
    get_empty: int = 0
    redeliver: int = 0
    ack: int = 0
    disk_reads: int = 0
    disk_writes: int = 0


@dataclass(slots=True)
class DiskCounters:
    """The counters of the thread for messages on disk. It alone writes those that begin with io_; times in seconds.

    io_write_count: appends.   io_sync_count: files and directories that were synced.
    msg_store_*: contents in the message store.   queue_index_*: entries of the journal, segments that were read.
    """

    io_read_count: int = 0
    io_read_bytes: int = 0
    io_read_time: float = 0.0
    io_write_count: int = 0
    io_write_bytes: int = 0
    io_write_time: float = 0.0
    io_sync_count: int = 0
    io_sync_time: float = 0.0
    msg_store_read_count: int = 0
    msg_store_write_count: int = 0
    queue_index_read_count: int = 0
    queue_index_write_count: int = 0


@dataclass(slots=True)
class ScrubCounters:
    """The counters of the scrubber, which looks for damage on disk, since the node's start.

    rounds: complete ones.   last_round_s: when the last one ended, since 1970; 0: none did.
    findings: files with damage that costs messages.
    """

    rounds: int = 0
    last_round_s: float = 0.0
    checked_bytes: int = 0
    findings: int = 0
