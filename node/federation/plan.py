"""The links that there are, by the catalogue alone, and the node that runs each.

An exchange's link runs on the node with the highest hash of node and link among those that are up, so links are spread
evenly, and only those of a lost node move. A queue's link runs where the queue's master is, as it follows the
consumers there. All nodes come to the same result, so nothing is agreed on, and no two nodes run a link for longer
than they differ about the catalogue.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from node.amqp.field_table import Table
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.policy import EffectivePolicy
from node.catalogue.records import (
    DEFAULT_EXCHANGE,
    ClusterMember,
    Exchange,
    Json,
    QueueRecord,
    ResourceKind,
)
from node.federation.names import INTERNAL_PURPOSE, link_id
from node.federation.upstream import Upstream, is_federated, upstreams_of
from node.plugins.exchanges.erlang_hash import phash2_32


class Federated(NamedTuple):
    """An exchange or queue here whose policy names upstreams."""

    kind: ResourceKind
    vhost: str
    name: str


class LinkKey(NamedTuple):
    """The identity of a link.   upstream_name: of the exchange or queue upstream."""

    of: Federated
    upstream: str
    upstream_name: str

    @property
    def id(self) -> str:
        """The id by which operators name the link."""
        return link_id(*self.of, self.upstream, self.upstream_name)


class Link(NamedTuple):
    """A link as it should be.

    policy: the name of the policy that asks for it.
    type, durable, auto_delete, internal, arguments: of the exchange or queue here; the one upstream is declared alike.
    """

    key: LinkKey
    upstream: Upstream
    policy: str | None
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table


class Facts(Protocol):
    """The catalogue, as this module reads it."""

    @property
    def members(self) -> Mapping[str, ClusterMember]:
        """The nodes of the cluster; none on a node without a cluster."""

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """Return the exchange."""

    def queue(self, vhost: str, name: str) -> QueueRecord | None:
        """Return the queue."""

    def effective_policy(self, record: QueueRecord | Exchange) -> EffectivePolicy:
        """Return the policy that applies."""

    def parameters(self, vhost: str) -> Mapping[tuple[str, str], Json]:
        """Return the parameters of a vhost by component and name."""


def federated_record(facts: Facts, of: Federated) -> Exchange | QueueRecord | None:
    """Return the exchange or queue if its policy names upstreams and it is one that can be federated."""
    record: Exchange | QueueRecord | None
    if of.kind == "exchange":
        record = facts.exchange(of.vhost, of.name)
        if record is None or record.name == DEFAULT_EXCHANGE or record.internal:
            return None
    else:
        record = facts.queue(of.vhost, of.name)
        if record is None or _is_internal(record):
            return None
    return record if is_federated(facts.effective_policy(record).definition) else None


def _is_internal(record: QueueRecord) -> bool:
    purpose = record.arguments.get(INTERNAL_PURPOSE)
    return is_exchange_queue(record.name) or (purpose is not None and isinstance(purpose.value, bytes))


def links_of(facts: Facts, of: Federated) -> Iterator[Link]:
    """Yield the links of an exchange or queue; of two with the same key the first counts."""
    record = federated_record(facts, of)
    if record is None:
        return
    policy = facts.effective_policy(record)
    seen = set()
    for upstream in upstreams_of(of.name, policy.definition, facts.parameters(of.vhost)):
        key = LinkKey(of, upstream.name, upstream.name_of(of.kind))
        if key not in seen:
            seen.add(key)
            yield _link(key, upstream, policy.policy, record)


def _link(key: LinkKey, upstream: Upstream, policy: str | None, record: Exchange | QueueRecord) -> Link:
    return Link(
        key,
        upstream,
        policy,
        record.type,
        record.durable,
        record.auto_delete,
        isinstance(record, Exchange) and record.internal,
        record.arguments,
    )


def owner_of(facts: Facts, key: LinkKey, here: str) -> str | None:
    """Return the node that runs a link; None: no node can.   here: the name of this node."""
    members = facts.members
    if key.of.kind == "queue":
        record = facts.queue(key.of.vhost, key.of.name)
        home = "" if record is None else record.home
        return home or here
    able = [each for each in members.values() if each.is_up and each.type != "witness"]
    if not members:
        return here
    if not able:
        return None
    willing = [each for each in able if not each.is_draining] or able
    link = key.id.encode()
    return max((each.name for each in willing), key=lambda name: (phash2_32((name.encode(), link)), name))
