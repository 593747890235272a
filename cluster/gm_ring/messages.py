"""The messages that a member of a ring sends to its right neighbour, as objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

NOTHING: Final = -1
"""The number before the first one: nothing is received, acknowledged or on disk."""


class Item(NamedTuple):
    """The news of one origin.

    origin: the member that broadcast.
    upto: the sender has all of the origin's broadcasts up to this number.
    payloads: those that end with `upto`, as many as the receiver may lack; none for the member that answers for the
    origin.
    ack: all members are known to have the broadcasts up to this number, so these need not be kept.
    mark: the broadcasts up to this number are on the disks of all members that count, from the origin to the sender.
    """

    origin: int
    upto: int
    payloads: Sequence[bytes]
    ack: int
    mark: int


@dataclass(frozen=True, slots=True)
class Activity:
    """The news that have gathered since the last message.

    version: of the sender's view.   edge: the receiver's, which names their being neighbours.
    items: in the order in which payloads came; an origin may be there more than once.
    """

    version: int
    edge: int
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The sender's whole state: the first message that a new right neighbour gets.

    version, edge: as in `Activity`.
    origins: like `Activity.items`; of each origin the last item has its numbers, those before it the payloads that
    are not acknowledged.
    is_cut: the next message continues this one, as the state is too large for one message.
    """

    version: int
    edge: int
    origins: Sequence[Item]
    is_cut: bool = False
