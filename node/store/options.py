"""The options of the store: sizes and times that are the same for all queues."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes and times of a node's store. The defaults but for the journal's are RabbitMQ's.

    embed_max_bytes: contents of at least this size go to the message store
        (queue_index_embed_msgs_below).
    segment_entries: messages of a queue that share a segment file. RabbitMQ's older number: fewer files.
    journal_file_bytes: a journal file of this size is full, and a checkpoint begins. A start after a crash
        reads about two of them, less than a second's work.
    store_file_bytes: a file of the message store of this size is full (msg_store_file_size_limit).
    commit_interval_s: operations that no publisher waits for are written after this time at the latest; a crash may
        lose them.
    scrub_rate: bytes per second that the scrubber reads; 0: it does not run.

    Source: amqp-behaviour §7.4, §7.5.
    """

    embed_max_bytes: int = 4096
    segment_entries: int = 16384
    journal_file_bytes: int = 64 * MIB
    store_file_bytes: int = 16 * MIB
    commit_interval_s: float = 0.025
    scrub_rate: int = 0
