"""What a member of a ring tells its right neighbour, as objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

NOTHING: Final = -1
"""The number before the first: nothing received, acknowledged, on disk."""


class Item(NamedTuple):
    """News of one origin.

    origin: who broadcast.
    upto: the sender has all of its broadcasts up to this number.
    payloads: those that end with `upto`, as many as the receiver may lack; none for who answers for the origin.
    ack: all members are known to have those up to here: they need not be kept.
    mark: those up to here are on the disks of all that count, from the origin to the sender.
    """

    origin: int
    upto: int
    payloads: Sequence[bytes]
    ack: int
    mark: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What has gathered since the last one.

    version: of the sender's view.   edge: the receiver's, which names their being neighbours.
    items: in the order in which payloads came; an origin may be there more than once.
    """

    version: int
    edge: int
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """All that the sender knows: the first thing that a new right neighbour hears.

    version, edge: as of `Activity`.
    origins: as its items; of each origin the last one has its state, those before it what is not acknowledged.
    is_cut: it goes on in the next one, as it is too large for one message.
    """

    version: int
    edge: int
    origins: Sequence[Item]
    is_cut: bool = False
