"""Create the first journal of a member: of a new group, or of a member that is to join one; load an existing one."""

from collections.abc import Iterable

from cluster.metadata.entries import NO_OP_COMMAND
from cluster.metadata.journal_file import Image, new_head, piece_payloads, read_image, write_image
from cluster.metadata.snapshots import first_entries
from node.store.disk import Disk


def create(disk: Disk, name: str, items: Iterable[bytes] = ()) -> None:
    """Write the journal of a new group of one.   items: the state that it begins with. Raises OSError."""
    previous, last = first_entries()
    image = Image(new_head(previous, last, [name]), list(piece_payloads(items)), term=1)
    write_image(disk, image)


def join(disk: Disk | None, voters: Iterable[str]) -> Image:
    """Return the journal of a member that follows these voters until it is added to them. It is written if there is
    a disk.

    Raises OSError.
    """
    image = _empty(voters)
    if disk is not None:
        write_image(disk, image)
    return image


def load(disk: Disk) -> Image:
    """Read the existing journal. Raises JournalUnreadable, NewerFormat, OSError."""
    return read_image(disk)


def _empty(voters: Iterable[str]) -> Image:
    return Image(new_head((NO_OP_COMMAND, 1, 0), (NO_OP_COMMAND, 2, 0), voters))
