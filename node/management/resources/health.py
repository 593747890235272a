"""Health checks: 200 with `"status":"ok"`, or 503 with `"status":"failed"` and why. Source: management §1.11."""

import asyncio
import datetime
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from node.amqp.methods import QueueDeclare
from node.amqp.properties import Properties
from node.catalogue.catalogue import Catalogue
from node.catalogue.names import resource
from node.catalogue.records import QueueRecord
from node.config.config import TlsOptions
from node.config.values import Address
from node.io.protocol_names import protocol_named
from node.io.turns import next_slice
from node.management.call import Call
from node.management.certificates import expiries
from node.management.reply import Reply, bad_request, no_such_thing, ok
from node.management.routes import Access, Route

ALIVENESS_QUEUE: Final = "aliveness-test"

_UNIT_DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}

_RESOURCES: Final = {"disk": "disk space", "metadata_disk": "metadata disk", "message_disk": "message disk"}
"""The names of resources in these answers only."""

_SLICE: Final = 1000

_FILES_MAX: Final = 20
"""The most damaged files that an answer names."""


class _Certificates(NamedTuple):
    """The files of one TLS listener."""

    protocol: str
    address: Address
    certificate_file: str | None
    ca_file: str | None


def failed(reason: str, **details: Any) -> Reply:
    """Return a 503."""
    return Reply(503, {"status": "failed", "reason": reason, **details})


def passed(**details: Any) -> Reply:
    """Return a 200."""
    return ok({"status": "ok", **details})


# --- does it serve? ---


async def ready(call: Call) -> Reply:
    """GET /health/ready, below /api or not, for balancers, without a user: whether clients should come here."""
    if call.site.is_ready():
        return passed()
    status = call.site.status()
    waits_for = status.get("waits_for")
    if status.get("is_paused"):
        why = f": it {waits_for}" if waits_for else ""
        return failed(f"the node is cut off from the others and pauses{why}")
    if status.get("is_draining"):
        return failed("the node is in maintenance mode")
    if status.get("is_message_disk_stuck"):
        return failed("the disk of the messages does not answer")
    if waits_for:
        return failed(f"the node {waits_for}")
    return failed("the node has not started" if status.get("is_booting") else "the broker does not run")


async def is_in_service(call: Call) -> Reply:
    """GET /health/checks/is-in-service and /ready-to-serve-clients, which newer RabbitMQs have."""
    return await ready(call)


async def is_below_connection_limit(call: Call) -> Reply:
    """GET /health/checks/below-node-connection-limit, which newer RabbitMQs have."""
    limit, count = call.site.config.amqp.connection_max, len(call.broker.connections)
    if limit is None:
        return passed(current=count, limit="infinity")
    if count < limit:
        return passed(current=count, limit=limit)
    return failed("the limit of connections is reached", current=count, limit=limit)


async def has_reached_size(call: Call) -> Reply:
    """GET /health/checks/reached-target-cluster-size, which newer RabbitMQs have."""
    count = sum(member.is_running for member in call.site.members())
    target = call.site.config.cluster.target_size_hint
    if count >= target:
        return passed(cluster_size=count, target_cluster_size=target)
    return failed(
        "the cluster has fewer nodes than it is to have", cluster_size=count, target_cluster_size=target
    )


async def aliveness(call: Call) -> Reply:
    """GET /aliveness-test/{vhost}: declares a queue, publishes and gets, as the user; the queue stays."""
    from node.management.direct import direct

    vhost = call.vhost(call.path["vhost"])
    async with direct(call, vhost) as client:
        await client.call(QueueDeclare(queue=ALIVENESS_QUEUE))
        await client.publish("", ALIVENESS_QUEUE, Properties(), b"test_message")
        got = await client.get(ALIVENESS_QUEUE, no_ack=True)
    return passed() if got is not None else failed("the published message is not in the queue")


async def node_check(call: Call) -> Reply:
    """GET /healthchecks/node and /healthchecks/node/{node}, which is deprecated: the node runs, and has no alarms."""
    name = call.path.get("node", call.site.config.node_name)
    member = next((each for each in call.site.members() if each.name == name), None)
    if member is None:
        raise no_such_thing()
    if not member.is_running:
        return failed(f"node {name} is not running")
    resources = [each["resource"] for each in call.site.cluster_status()["alarms"] if each["node"] == name]
    if resources:
        return failed(f"resource alarm(s) in effect: {', '.join(resources)}")
    return passed()


# --- alarms ---


async def alarms(call: Call) -> Reply:
    """GET /health/checks/alarms: of all nodes."""
    found = _alarms(call)
    return failed("There are alarms in effect in the cluster", alarms=found) if found else passed()


async def local_alarms(call: Call) -> Reply:
    """GET /health/checks/local-alarms."""
    own = call.site.config.node_name
    found = [each for each in _alarms(call) if each["node"] == own]
    return failed("There are alarms in effect on the node", alarms=found) if found else passed()


def _alarms(call: Call) -> list[dict[str, str]]:
    return [
        {"node": each["node"], "resource": _RESOURCES.get(each["resource"], each["resource"])}
        for each in call.site.cluster_status()["alarms"]
    ]


# --- listeners ---


async def port_listener(call: Call) -> Reply:
    """GET /health/checks/port-listener/{port}."""
    text = call.path["port"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_request("Invalid port")
    port = int(text)
    ports = [listener["port"] for listener in call.site.status()["listeners"]]
    return passed(port=port) if port in ports else failed("No active listener", missing=port, ports=ports)


async def protocol_listener(call: Call) -> Reply:
    """GET /health/checks/protocol-listener/{protocol}: one of a protocol's many names."""
    protocol = protocol_named(call.path["protocol"])
    protocols = list(dict.fromkeys(listener["protocol"] for listener in call.site.status()["listeners"]))
    if protocol in protocols:
        return passed(protocol=protocol)
    return failed("No active listener", missing=protocol, protocols=protocols)


async def certificate_expiration(call: Call) -> Reply:
    """GET /health/checks/certificate-expiration/{within}/{unit}: the TLS listeners of this node."""
    unit_days = _UNIT_DAYS.get(call.path["unit"])
    if unit_days is None:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    try:
        within = int(call.path["within"][:12])
        limit = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=within * unit_days)
    except (ValueError, OverflowError):
        raise bad_request("Invalid expiration value.") from None
    found = await asyncio.to_thread(lambda: [_expiring(call, each, limit) for each in _certificates(call)])
    expired = [each for each in found if each is not None]
    return failed("Certificates expiring", expired=expired) if expired else passed()


def _certificates(call: Call) -> Iterator[_Certificates]:
    config = call.site.config

    def files(protocol: str, address: Address, tls: TlsOptions) -> _Certificates:
        return _Certificates(protocol, address, tls.certificate_file or None, tls.ca_file)

    for address in config.tls_listeners:
        yield files("amqp/ssl", address, config.tls)
    if config.management.tls_listen is not None:
        yield files("https", config.management.tls_listen, config.management.tls)
    if config.prometheus.tls_listen is not None:
        yield files("https/prometheus", config.prometheus.tls_listen, config.prometheus.tls)
    cluster = config.cluster
    if cluster.listen is not None and cluster.certificate_file is not None:
        yield _Certificates("clustering", cluster.listen, cluster.certificate_file, cluster.ca_file)


def _expiring(call: Call, files: _Certificates, limit: datetime.datetime) -> dict[str, Any] | None:
    """Return a listener one of whose certificates ends before `limit` or cannot be read; else None."""
    ends = {name: _end(name) for name in (files.certificate_file, files.ca_file) if name is not None}
    if all(end is not None and end > limit for end in ends.values()):
        return None

    def shown(name: str | None) -> str:
        end = None if name is None else ends[name]
        return "" if end is None else end.strftime("%Y-%m-%d %H:%M:%S")

    return {
        "node": call.site.config.node_name,
        "protocol": files.protocol,
        "interface": f"[{files.address.host or '::'}]"
        if ":" in (files.address.host or "::")
        else files.address.host,
        "port": files.address.port,
        "certfile": files.certificate_file or "",
        "cacertfile": files.ca_file or "",
        "certfile_expires_on": shown(files.certificate_file),
        "cacertfile_expires_on": shown(files.ca_file),
    }


def _end(path: str) -> datetime.datetime | None:
    """Return when the first of a file's certificates ends; None if the file cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return min(expiries(file.read(1 << 20)), default=None)
    except (OSError, ValueError):
        return None


# --- queues ---


async def virtual_hosts(call: Call) -> Reply:
    """GET /health/checks/virtual-hosts: fails with the vhosts that don't run here."""
    live = call.broker.vhosts
    down = [vhost.name for vhost in call.catalogue.vhosts() if vhost.name not in live]
    return failed("Some virtual hosts are down", **{"virtual-hosts": down}) if down else passed()


async def mirror_sync_critical(call: Call) -> Reply:
    """GET /health/checks/node-is-mirror-sync-critical: mirrored queues that would be lost with this node."""
    return await _critical(
        call,
        "classic",
        has_no_other_copy,
        "There are classic mirrored queues without online synchronised mirrors",
    )


async def quorum_critical(call: Call) -> Reply:
    """GET /health/checks/node-is-quorum-critical: quorum queues that would stop without this node."""
    return await _critical(
        call, "quorum", would_lose_majority, "There are quorum queues that would lose their quorum"
    )


async def _critical(
    call: Call, queue_type: str, is_critical: Callable[[QueueRecord, str], bool], reason: str
) -> Reply:
    if len(call.site.members()) == 1:
        return passed(reason="single node cluster")
    own, found = call.site.config.node_name, []
    for number, record in enumerate(_mirrored(call.catalogue)):
        if number % _SLICE == _SLICE - 1:
            await next_slice()
        if record.type == queue_type and is_critical(record, own):
            found.append(
                {
                    "name": record.name,
                    "readable_name": resource("queue", record.name, record.vhost),
                    "type": record.type,
                    "virtual_host": record.vhost,
                }
            )
    return failed(reason, queues=found) if found else passed()


async def store_damage(call: Call) -> Reply:
    """GET /health/checks/store-damage: files of this node with damaged messages. RabbitMQ has no such check."""
    files = call.broker.storage.damaged_files()
    if not files:
        return passed()
    return failed("Files with messages are damaged on the node", count=len(files), files=files[:_FILES_MAX])


def _mirrored(catalogue: Catalogue) -> list[QueueRecord]:
    return [
        record
        for vhost in catalogue.vhosts()
        for record in catalogue.queues(vhost.name)
        if record.view is not None
    ]


def has_no_other_copy(record: QueueRecord, own: str) -> bool:
    """True if this node's copy is the master's, and the only complete one."""
    view = record.view
    if view is None or view.master_node != own:
        return False
    return not any(member.id in view.synced and member.id != view.master for member in view.ring)


def would_lose_majority(record: QueueRecord, own: str) -> bool:
    """True if the queue would lose its majority without this node."""
    view = record.view
    if view is None or len(view.members) == 1:
        return False
    online = {member.node for member in view.ring}
    return own in online and len(online) <= len(view.members) // 2 + 1


ROUTES: Final = (
    Route("GET", "/health/ready", ready, Access.PUBLIC),
    Route("GET", "/health/ready", ready, Access.PUBLIC, is_outside=True),
    Route("GET", "/aliveness-test/{vhost}", aliveness),
    Route("GET", "/healthchecks/node", node_check),
    Route("GET", "/healthchecks/node/{node}", node_check),
    Route("GET", "/health/checks/alarms", alarms),
    Route("GET", "/health/checks/local-alarms", local_alarms),
    Route("GET", "/health/checks/certificate-expiration/{within}/{unit}", certificate_expiration),
    Route("GET", "/health/checks/port-listener/{port}", port_listener),
    Route("GET", "/health/checks/protocol-listener/{protocol}", protocol_listener),
    Route("GET", "/health/checks/virtual-hosts", virtual_hosts),
    Route("GET", "/health/checks/node-is-mirror-sync-critical", mirror_sync_critical),
    Route("GET", "/health/checks/node-is-quorum-critical", quorum_critical),
    Route("GET", "/health/checks/store-damage", store_damage),
    Route("GET", "/health/checks/is-in-service", is_in_service),
    Route("GET", "/health/checks/ready-to-serve-clients", is_in_service),
    Route("GET", "/health/checks/below-node-connection-limit", is_below_connection_limit),
    Route("GET", "/health/checks/reached-target-cluster-size", has_reached_size),
)
