"""A node that belongs to no cluster finds one to join, or creates one.

    configured list, DNS, plug-in ─► which of them belong to a cluster? ─► one: join it
                                                                  ─► none: the first of the list makes it,
                                                                     the others wait for that
    no list: a cluster of one, which others join by join_cluster

A RAM node makes none: it keeps no metadata. Source: reliability §2.5 (classic_config_discovery_node_list, last RAM/disc
rules); management §3.2.
"""

import asyncio
import os
import socket
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.transport.interface import PeerRefused
from node.app import first_commands, log_first_commands
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, PutMember, SetGlobalParameter
from node.catalogue.records import MemberType
from node.catalogue.snapshot import snapshot
from node.clustering import consent, metadata, requests
from node.clustering.discovery import PluginDiscovery
from node.clustering.identity import CLUSTER_ID, NodeIdentity
from node.clustering.requests import Applicant
from node.clustering.waiting import Waiting, boottime
from node.config.config import DEFAULT_PEER_PORT
from node.io.control import ControlError, refused
from node.io.data_directory import DataDirectoryError
from node.io.disk import FileDisk
from node.log import phrases
from node.store.directory import REMOVED_RAFT, STORE_FILE
from node.store.disk import Remove, SyncDir
from node.store.metadata_log import PATH as METADATA_LOG
from node.store.metadata_log import MetadataLog, MetadataUnreadable
from node.store.records import NewerFormat

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster

ASK_S: Final = 2.0
"""The time that another node gets to answer with its identity."""
JOIN_S: Final = 15.0


class Found(NamedTuple):
    """The identity of a node that was asked for it."""

    name: str
    address: str
    node_id: str
    cluster_id: str
    is_ready: bool = False
    """True if it can admit other nodes already."""


class _Silent(NamedTuple):
    """A node that did not give its identity."""

    why: str
    is_refusal: bool


class _Search(NamedTuple):
    """The result of asking all configured nodes.

    free: the nodes that belong to no cluster, including this one if it is on the list.
    silent: for each node that gave no identity, why.   is_refused: whether one of these exists, but refuses to talk
    to this one.
    is_first: whether this node stands before all others on the list.
    """

    members: list[Found]
    free: list[Found]
    silent: list[str]
    is_refused: bool
    is_first: bool


async def form(cluster: "Cluster") -> None:
    """Make this node a member of a cluster. Raises: OSError, GivenUp, DataDirectoryError."""
    options = cluster.config.cluster
    _check_is_new(cluster.config.data_dir)
    if options.formation_plugin is not None:
        discovery = PluginDiscovery.of(cluster.config, cluster.logger)
        try:
            await cluster.or_given_up(discovery.announce(cluster.links.address))
            await _look_around(cluster, discovery)
        finally:
            await discovery.close()
        return
    if not options.formation_nodes and options.formation_dns_hostname is None:
        if cluster.roster.identity.type == "ram":
            raise OSError(
                "a RAM node cannot be the first of a cluster: it needs cluster_formation settings that name a disk node"
            )
        if cluster.roster.identity.type == "witness":
            raise OSError("a witness needs cluster_formation settings that name the nodes of its cluster")
        await create(cluster)
        return
    await _look_around(cluster, None)


async def _look_around(cluster: "Cluster", discovery: PluginDiscovery | None) -> None:
    """Ask other nodes until this one has joined their cluster, or may create one. Raises: as `form`."""
    options = cluster.config.cluster
    waiting, tries = Waiting(cluster, options.discovery_retry_interval_s), 0
    while True:
        search = await cluster.or_given_up(_search(cluster, discovery))
        for member in search.members:
            if member.is_ready and await _try_to_join(cluster, member, waiting):
                return
        tries += 1
        # A node that refuses us may belong to the cluster: another cluster must not be created beside it.
        has_asked_enough = not search.silent or (
            tries >= options.discovery_retry_limit and not search.is_refused
        )
        needed = options.target_size_hint // 2 + 1
        if len(search.free) < needed:
            reasons = [*search.silent, _too_few(len(search.free), needed, options.target_size_hint)]
            await waiting.tell("for another node", reasons)
            continue
        if search.is_first and not search.members and has_asked_enough:
            if cluster.roster.identity.type != "disc":
                raise OSError(
                    "a RAM node or a witness cannot be the first of a cluster: none of the other nodes belongs to one"
                )
            refusals = await cluster.or_given_up(_refusals(cluster, search.free))
            if not refusals:
                await create(cluster)
                return
            await waiting.tell("for a cluster that another node may be about to create", refusals)
            continue
        await waiting.tell("for another node that belongs to a cluster", search.silent)


async def _refusals(cluster: "Cluster", free: list[Found]) -> list[str]:
    """Ask all nodes that belong to no cluster to let this one create one, itself first: it may have let another one.

    Returns: why this node must not create one, in words; empty: all consent.
    """
    own = cluster.consent
    if not own.give(cluster.name):
        return [consent.held(cluster.name, own.holder)]
    asked_at = boottime()
    others = [each for each in free if each.name != cluster.name]
    told = await asyncio.gather(*(_ask_for_consent(cluster, each) for each in others))
    refusals = [why for why in told if why]
    # The rest of the time is for writing the cluster's metadata.
    if not refusals and boottime() - asked_at >= consent.CONSENT_S / 2:
        refusals = [consent.LATE]
    if refusals:
        own.withdraw(cluster.name)
        await asyncio.gather(*(_ask_for_consent(cluster, each, is_withdrawn=True) for each in others))
    return refusals


async def _ask_for_consent(cluster: "Cluster", other: Found, *, is_withdrawn: bool = False) -> str:
    """Ask a node for its consent, or give that back. Returns: why it does not consent, in words; empty: it does."""
    try:
        told = await cluster.calls.ask(other.address, {"do": "consent", "is_withdrawn": is_withdrawn}, ASK_S)
    except ControlError as error:
        return f"node '{other.name}' did not answer: {error}"
    return consent.refusal(other.name, told)


def _check_is_new(data_dir: str) -> None:
    """Check that the data directory has not lost the metadata of a cluster: a node with messages, and neither
    metadata of its own nor DATA/raft, must not create another cluster beside its own. Raises: DataDirectoryError.
    """
    names = os.listdir(data_dir)
    if STORE_FILE in names and METADATA_LOG not in names and REMOVED_RAFT not in names:
        raise DataDirectoryError(
            f"the data directory {data_dir} holds the messages of a node that belonged to a cluster, and its directory "
            "raft/ with the metadata is gone: put it back. If it is lost, have another node forget this one "
            "(forget_cluster_node), and start with an empty data directory"
        )


def _too_few(count: int, needed: int, size: int) -> str:
    return (
        f"{count} of the nodes that were asked, this one counted, belong to no cluster; it takes {needed} to make one "
        f"of {size} (cluster_formation.target_cluster_size_hint)"
    )


async def _search(cluster: "Cluster", discovery: PluginDiscovery | None) -> _Search:
    own = cluster.config.node_name
    places = await (_places(cluster) if discovery is None else discovery.places())
    found = await asyncio.gather(*(_ask(cluster, name, address) for name, address in places))
    others = [each for each in found if isinstance(each, Found) and each.name != own]
    silent = [each for each in found if isinstance(each, _Silent)]
    is_first = False
    for (name, _), each in zip(places, found, strict=True):
        if (each.name if isinstance(each, Found) else name) == own:
            is_first = True
            break
        if isinstance(each, Found) or name:
            break
    members = [each for each in others if each.cluster_id]
    free = [each for each in found if isinstance(each, Found) and not each.cluster_id]
    return _Search(
        members, free, [each.why for each in silent], any(each.is_refusal for each in silent), is_first
    )


async def _places(cluster: "Cluster") -> list[tuple[str, str]]:
    """Return the names (empty if unknown) and addresses of the nodes to ask; the first of them may create the
    cluster.
    """
    options = cluster.config.cluster
    if options.formation_dns_hostname is None:
        return [(node.name, node.address) for node in options.formation_nodes]
    hostname = options.formation_dns_hostname
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            hostname, DEFAULT_PEER_PORT, type=socket.SOCK_STREAM
        )
    except OSError as error:
        cluster.logger.warning("the addresses of %s are not known: %s", hostname, error)
        return []
    hosts = sorted({str(address[0]) for *_, address in found})
    return [
        ("", f"[{host}]:{DEFAULT_PEER_PORT}" if ":" in host else f"{host}:{DEFAULT_PEER_PORT}")
        for host in hosts
    ]


async def _ask(cluster: "Cluster", name: str, address: str) -> "Found | _Silent":
    """Ask a node for its identity; this node's own needs no request."""
    if name == cluster.name or address == cluster.links.address:
        identity = cluster.roster.identity
        return Found(cluster.name, address, identity.node_id, "")
    try:
        told = await cluster.calls.ask(address, {"do": "describe"}, ASK_S)
        cluster_id = told.get("cluster_id") if isinstance(told, dict) else None
        return Found(
            requests.text(told, "name"),
            address,
            requests.text(told, "node_id"),
            cluster_id if isinstance(cluster_id, str) else "",
            told.get("is_ready") is True,
        )
    except (ControlError, AttributeError, TypeError) as error:
        where = f"node '{name}' at {address}" if name else f"the node at {address}"
        text = str(error)
        why = where + text.removeprefix(address) if text.startswith(address) else f"{where}: {text}"
        return _Silent(why, isinstance(error.__cause__, PeerRefused))


async def _try_to_join(cluster: "Cluster", member: Found, waiting: Waiting) -> bool:
    try:
        await cluster.or_given_up(
            join(cluster, member.address, member.cluster_id, cluster.roster.identity.type)
        )
    except ControlError as error:
        waiting.warn(f"node '{member.name}' does not let this one join: {error.text}")
        return False
    return True


async def join(cluster: "Cluster", address: str, cluster_id: str, node_type: MemberType) -> None:
    """Become a member of a cluster through one of its members. Raises: ControlError, OSError."""
    identity = replace(cluster.roster.identity, type=node_type, cluster_id=cluster_id)
    asks = Applicant(cluster.name, cluster.links.address, identity.node_id, node_type)
    cluster.roster.joining(cluster_id)
    try:
        await _join(cluster, address, asks, identity)
    except BaseException:
        cluster.roster.joining("")
        raise


async def _join(cluster: "Cluster", address: str, asks: Applicant, identity: NodeIdentity) -> None:
    told = await cluster.calls.ask(address, {"do": "join", **asks._asdict()}, JOIN_S)
    if not isinstance(told, dict):
        raise refused(f"the node at {address} gave an invalid answer")
    members = requests.applicants(told.get("members"))
    cluster.logger.info(
        phrases.clustering_with([each.name for each in members if each.name != cluster.name], asks.type)
    )
    if asks.type != "ram":
        voters = told.get("voters")
        await cluster.roster.quiet_disk()
        metadata.join(
            cluster.disk, cluster.name, [str(name) for name in voters] if isinstance(voters, list) else []
        )
    await cluster.roster.become(replace(identity, members=members))
    _drop_former_metadata(cluster.config.data_dir)
    cluster.open_metadata()


async def create(cluster: "Cluster") -> None:
    """Create a cluster of this node alone, with the metadata that it had before. Raises: OSError, ConfigError."""
    identity = replace(cluster.roster.identity, type="disc", cluster_id=f"rabbitmq-cluster-id-{uuid.uuid4()}")
    own = Applicant(cluster.name, cluster.links.address, identity.node_id, "disc")
    former = _former_metadata(cluster)
    commands = former or first_commands(cluster.config)
    commands += [
        SetGlobalParameter(CLUSTER_ID, identity.cluster_id),
        PutMember(own.name, own.address, own.node_id, own.type),
    ]
    await cluster.roster.quiet_disk()
    metadata.create(cluster.disk, cluster.name, commands)
    await cluster.roster.become(replace(identity, members=(own,)))
    _drop_former_metadata(cluster.config.data_dir)
    cluster.open_metadata()
    if not former:
        log_first_commands(cluster.config, cluster.logger)


def _drop_former_metadata(data_dir: str) -> None:
    """Remove the metadata log of a node without a cluster: its content is in the cluster's metadata now, and it must
    not be loaded again if those are lost. Raises: OSError, DataDirectoryError.
    """
    disk = FileDisk.open(data_dir)
    try:
        if METADATA_LOG in disk.names(""):
            disk.run([Remove(METADATA_LOG), SyncDir("")])
    finally:
        disk.close()


def _former_metadata(cluster: "Cluster") -> list[Command[Any]]:
    """Return the metadata in the log of a node without a cluster, as commands. Raises: DataDirectoryError."""
    data_dir = cluster.config.data_dir
    disk = FileDisk.open(data_dir)
    try:
        if METADATA_LOG not in disk.names(""):
            return []
        catalogue = Catalogue()
        MetadataLog(disk, catalogue).load(
            lambda command, on_applied: on_applied(catalogue.apply(command)),
            lambda path, offset, what: cluster.logger.error(
                "damage in %s at offset %d: %s", path, offset, what
            ),
        )
        return list(snapshot(catalogue))
    except (MetadataUnreadable, NewerFormat) as error:
        raise DataDirectoryError(f"the data directory {data_dir} cannot be read: {error}") from error
    finally:
        disk.close()
