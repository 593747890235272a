"""Operations on the membership of a node whose broker is stopped: join_cluster, reset, change_cluster_node_type.

Source: rabbit_mnesia.erl v3.13.7 (join_cluster, reset, change_cluster_node_type), reliability §2.5.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from node.clustering import errors
from node.config.config import DEFAULT_PEER_PORT
from node.io.control import EX_SOFTWARE, ControlError, find_node, refused, request, unavailable
from node.io.data_directory import open_data_directory
from node.log import phrases
from node.store.directory import (
    CORRUPT,
    FILES,
    JOURNAL,
    MESSAGES,
    QUEUES,
    RAFT,
    REMOVED_RAFT,
    STORE_FILE,
    TRANSIENT,
)
from node.store.disk import RemoveTree, Rename, SyncDir

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster
    from node.process.agent import Agent

_KEPT: Final = (JOURNAL, QUEUES, MESSAGES, TRANSIENT, CORRUPT, *FILES)
LOOK_UP_S: Final = 5.0
PROBE_S: Final = 1.0
"""The time that a listener gets to accept a connection."""

NodeType = Literal["disc", "ram"]


async def join_cluster(agent: "Agent", node: str, address: str | None, node_type: NodeType) -> bool:
    """Make this node a member of another node's cluster; all its own data are lost. Returns: True if it was a member
    already.

    Raises: ControlError.
    """
    if node == agent.config.node_name:
        raise errors.with_itself(node)
    if address is None:
        address = await _address_of(agent, node)
    cluster = agent.cluster or await _open(agent)
    told = await _describe(cluster, address)
    if not isinstance(told, dict) or told.get("name") != node:
        found = told.get("name") if isinstance(told, dict) else None
        raise unavailable(f"the node at {address} is not '{node}', but '{found}'")
    cluster_id = told.get("cluster_id")
    if not cluster_id:
        raise unavailable(f"node '{node}' belongs to no cluster: it was not started with a peer listener")
    if cluster_id == cluster.roster.identity.cluster_id:
        body = {"do": "membership", "node_id": cluster.roster.identity.node_id}
        answer = await cluster.calls.ask(address, body)
        if isinstance(answer, dict) and answer.get("is_member"):
            return True
    others = [each for each in cluster.roster.members.values() if each.name != agent.config.node_name]
    if others and cluster.roster.identity.type == "disc" and not any(each.type == "disc" for each in others):
        raise refused(errors.ONLY_DISC_NODE_JOINS)
    await reset(agent, is_forced=False, reopens=True)
    assert agent.cluster is not None
    await _join(agent.cluster, address, str(cluster_id), node_type)
    return False


async def _describe(cluster: "Cluster", address: str) -> Any:
    """Ask a node for its identity. Raises: ControlError, which helps to find the address if no node answers."""
    try:
        return await cluster.calls.ask(address, {"do": "describe"})
    except errors.Unreached as error:
        found = (
            f"something listens at {address}, but it is not a Fluffle node, or it requires TLS certificates"
            if await _accepts(address)
            else "nothing listens there"
        )
        raise unavailable(
            f"{error.text}: {found}. Give NAME@HOST:PORT, with the port that 'fluffle ctl cluster_status' shows for "
            "clustering on that node"
        ) from error


async def _accepts(address: str) -> bool:
    """Return whether a listener accepts connections at an address."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError):  # a time-out is an OSError
        return False
    writer.close()
    return True


async def _join(cluster: "Cluster", address: str, cluster_id: str, node_type: NodeType) -> None:
    from node.clustering import formation

    try:
        await formation.join(cluster, address, cluster_id, node_type)
    except OSError as error:
        raise unavailable(f"the node cannot keep metadata: {error}") from error


async def _open(agent: "Agent") -> "Cluster":
    """Open the peer listener of a node that had none. Raises: ControlError."""
    from node.config.file import ConfigError

    try:
        return await agent.open_cluster()
    except ConfigError as error:
        raise ControlError(78, "\n".join(error.problems)) from error
    except OSError as error:
        raise unavailable(f"the peer listener cannot be opened: {error}") from error


async def _address_of(agent: "Agent", node: str) -> str:
    """Return a node's peer address: configured, else as a node of this machine reports it, else the default."""
    for seed in agent.config.cluster.formation_nodes:
        if seed.name == node:
            return seed.address
    address = await asyncio.to_thread(_address_here, node, agent.environ)
    return address or f"{node.partition('@')[2]}:{DEFAULT_PEER_PORT}"


def _address_here(node: str, environ: Mapping[str, str]) -> str | None:
    data_dir = find_node(node, environ)
    if data_dir is None:
        return None
    try:
        members: Any = request(data_dir, "list_members", {}, timeout_s=LOOK_UP_S)["members"]
        return next((str(each["address"]) for each in members if each["name"] == node), None)
    except (ControlError, KeyError, TypeError):
        return None


async def reset(agent: "Agent", *, is_forced: bool, reopens: bool = False) -> None:
    """Leave the cluster and remove all data.

    is_forced: do not tell the other nodes.   reopens: open a peer listener even if only a join asks for one.
    Raises: ControlError.
    """
    agent.logger.info(phrases.resetting(is_forced=is_forced))
    cluster = agent.cluster
    if cluster is not None and not is_forced:
        await _leave(cluster)
    await agent.close_cluster()
    try:
        wipe(agent.config.data_dir)
    except OSError as error:
        raise unavailable(f"the data directory cannot be emptied: {error}") from error
    if reopens or agent.is_clusterable:
        await _open(agent)


async def _leave(cluster: "Cluster") -> None:
    others = cluster.voting.others()
    if cluster.metadata is None or not others:
        return
    if cluster.roster.members:
        cluster.voting.check_not_last_disc(cluster.name, errors.ONLY_DISC_NODE_RESETS)
    body = {"do": "leave", "node_id": cluster.roster.identity.node_id}
    try:
        await cluster.calls.ask_any(others, body, 25.0)
    except ControlError as error:
        if error.exit_code == EX_SOFTWARE:
            raise
        cluster.logger.warning("no other node lets this one leave: %s", error.text)
        raise refused(errors.NO_RUNNING_NODES) from error


async def change_type(agent: "Agent", node_type: NodeType) -> None:
    """Make this member a disk or a RAM node. Raises: ControlError."""
    from node.clustering import metadata

    cluster = agent.cluster
    others = [] if cluster is None else cluster.voting.others()
    if cluster is None or cluster.metadata is None or not others:
        raise refused(errors.NOT_CLUSTERED)
    if cluster.roster.identity.type == node_type:
        return
    if cluster.roster.members and node_type == "ram":
        cluster.voting.check_not_last_disc(cluster.name, errors.ONLY_DISC_NODE_RESETS)
    body = {"do": "change_type", "node_id": cluster.roster.identity.node_id, "type": node_type}
    try:
        await cluster.calls.ask_any(others, body, 25.0)
    except ControlError as error:
        if error.exit_code == EX_SOFTWARE:
            raise
        raise refused(errors.NO_ONLINE_NODES) from error
    if node_type == "disc":
        await cluster.roster.quiet_disk()
        metadata.join(cluster.disk, cluster.name, cluster.metadata.raft.voters)
    await cluster.roster.become(replace(cluster.roster.identity, type=node_type))
    await agent.close_cluster()
    await _open(agent)


def reset_offline(data_dir: str) -> None:
    """Empty the data directory of a node that does not run, without telling other nodes.

    Raises: OfflineError; DataDirectoryError when a node runs on the directory; OSError.
    """
    from node.clustering.offline import OfflineError

    if not any(os.path.lexists(os.path.join(data_dir, name)) for name in (STORE_FILE, RAFT)):
        raise OfflineError(EX_SOFTWARE, f"there are no data of a node in {data_dir}")
    wipe(data_dir)


def wipe(data_dir: str) -> None:
    """Remove all data of a node, its identity last, so that the leftovers of a crash are not taken for something
    else.

    Raises: OSError.
    """
    directory = open_data_directory(data_dir)
    try:
        if RAFT in directory.names(""):
            directory.execute(RemoveTree(REMOVED_RAFT))
            # In one step: half of the directory would be taken for damage.
            directory.execute(Rename(RAFT, REMOVED_RAFT))
            directory.execute(SyncDir(""))
        for name in _KEPT:
            directory.execute(RemoveTree(name))
        directory.execute(SyncDir(""))
        directory.execute(RemoveTree(STORE_FILE))
        directory.execute(SyncDir(""))
        directory.execute(RemoveTree(REMOVED_RAFT))
        directory.execute(SyncDir(""))
    finally:
        directory.close()
