"""Contents by where they are kept: large ones in the message store, the others in the queue's index.

Source: amqp-behaviour §7.4; docs/internals/disk.md, "From a queue to the disk".
"""

from itertools import groupby

from node.amqp.reader import MIXED_SIZES


def by_place(contents: list[bytes], size: int, embed_max_bytes: int) -> list[list[bytes]]:
    """Return contents in the fewest lists, in order, each for one place: the first content of a list says which.

    size: as in `Run`.   embed_max_bytes: contents of at least this size go to the message store.
    """
    if size != MIXED_SIZES or max(map(len, contents)) < embed_max_bytes:
        return [contents]
    return [list(piece) for _, piece in groupby(contents, lambda content: len(content) >= embed_max_bytes)]
