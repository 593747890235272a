"""The file `raft/node.json` keeps a node's identity in its cluster over restarts.

The file is written before the node takes part in anything, and again when the members change: a RAM node, which has no
log of its own, finds its cluster by the file. Source: reliability §2.5 (persistent_cluster_id), §4.10.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

from node.catalogue.records import MemberType
from node.clustering.requests import Applicant, applicants, member_type
from node.io.control import ControlError
from node.store.disk import TO_THE_END, Append, Disk, Read, Remove, Rename, Step, Sync, SyncDir

FORMAT: Final = 1
FILE: Final = "node.json"
CLUSTER_ID: Final = "internal_cluster_id"
"""The global parameter that holds the id of the cluster."""
_NEW: Final = "node.json.new"


class IdentityUnreadable(Exception):
    """The identity file cannot be used. The text is for the operator."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The content of the identity file.

    node_id: of this data directory, for ever.   cluster_id: empty while the node belongs to no cluster.
    members: as this node last saw them.
    former_cluster_id: the cluster from which `forget_cluster_node --offline` has made this one; empty if none.
    """

    name: str
    node_id: str
    type: MemberType
    cluster_id: str = ""
    members: tuple[Applicant, ...] = ()
    former_cluster_id: str = ""

    @property
    def is_member(self) -> bool:
        """True if the node belongs to a cluster."""
        return bool(self.cluster_id)


def read_identity(disk: Disk) -> NodeIdentity | None:
    """Return the content of the identity file; None if there is no file. Raises: IdentityUnreadable, OSError."""
    if FILE not in disk.names(""):
        return None
    try:
        found: Any = json.loads(bytes(disk.run([Read(FILE, 0, TO_THE_END)])[0]))
        if found["format"] != FORMAT:
            raise IdentityUnreadable(f"{FILE} has format {found['format']!r}; this version knows {FORMAT}")
        name, node_id, cluster_id = (_text(found[key]) for key in ("name", "node_id", "cluster_id"))
        members = applicants(found["members"])
        former = _text(found.get("former_cluster_id", ""))
        return NodeIdentity(name, node_id, member_type(found["type"]), cluster_id, members, former)
    except (ValueError, KeyError, TypeError, ControlError) as error:  # bad UTF-8 is a ValueError
        raise IdentityUnreadable(f"{FILE} is damaged: {error!r}") from None


def writing(identity: NodeIdentity) -> list[Step]:
    """Return the disk steps that replace the identity file by this identity."""
    content = {
        "format": FORMAT,
        "name": identity.name,
        "node_id": identity.node_id,
        "type": identity.type,
        "cluster_id": identity.cluster_id,
        "members": [member._asdict() for member in identity.members],
        **({"former_cluster_id": identity.former_cluster_id} if identity.former_cluster_id else {}),
    }
    text = json.dumps(content, indent=1) + "\n"
    return [Remove(_NEW), Append(_NEW, [text.encode()]), Sync(_NEW), Rename(_NEW, FILE), SyncDir("")]


async def write_identity(disk: Disk, identity: NodeIdentity) -> None:
    """Write and sync the identity file. Raises: OSError."""
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def failed(error: OSError) -> None:
        if not written.done():
            written.set_exception(error)

    def done(_: list[Any]) -> None:
        if not written.done():
            written.set_result(None)

    disk.submit(writing(identity), done, failed)
    await written


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
