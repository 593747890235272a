"""The links that this node runs: they follow the catalogue, event by event.

    exchange, queue, policy, parameter or binding changed ─┐
    a node came or went                                   ─┼─► links.changed(event) ─► some links start, change or end
    the name of the cluster changed                       ─┘

A link that another node is to run is let go without a trace; one that is no more deletes what it made upstream.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from node.catalogue import events
from node.catalogue.federation_parameters import UPSTREAM, UPSTREAM_SET
from node.catalogue.records import Binding, Exchange, QueueRecord, Vhost
from node.federation.life import LinkHost, LinkLife
from node.federation.link import Counters
from node.federation.plan import Facts, Federated, Link, LinkKey, federated_record, links_of, owner_of

CLUSTER_NAME: Final = "cluster_name"


class AllFacts(Facts, Protocol):
    """The catalogue, as this module reads it."""

    def vhosts(self) -> Iterable[Vhost]:
        """Return all vhosts."""

    def exchanges(self, vhost: str) -> Iterable[Exchange]:
        """Return the exchanges of a vhost."""

    def queues(self, vhost: str) -> Iterable[QueueRecord]:
        """Return the queues of a vhost."""


class LinksHost(LinkHost, Protocol):
    """The node, as its links use it."""

    @property
    def node(self) -> str:
        """The name of this node."""

    def watch(self, of: Federated, *, is_watched: bool) -> None:
        """Call `Links.consumers_changed` when a queue here has other consumers or gets empty, or no longer."""


class Links:
    """The links of one node, from `begin` to `stop`."""

    def __init__(self, facts: AllFacts, host: LinksHost) -> None:
        self._facts = facts
        self._host = host
        self._lives: dict[Federated, dict[LinkKey, LinkLife]] = {}
        self._federated: dict[str, set[Federated]] = {}
        """By vhost what names upstreams, whether there are any and whoever runs their links."""
        self._leaving: set[LinkLife] = set()
        """Links that are no more, and still delete what they made."""
        self._ended_counters = Counters()
        """The sums of links that have ended."""

    def __iter__(self) -> Iterator[LinkLife]:
        for lives in self._lives.values():
            yield from lives.values()

    def totals(self) -> Counters:
        """Return the sums of all links that have run here."""
        totals = Counters()
        totals.add(self._ended_counters)
        for life in (*self, *self._leaving):
            totals.add(life.counters)
        return totals

    def find(self, id_: str) -> LinkLife | None:
        """Return the link with an id; None: it does not run here."""
        return next((each for each in self if each.link.key.id == id_), None)

    def begin(self) -> None:
        """Start the links that are to run here."""
        for vhost in self._facts.vhosts():
            for exchange in self._facts.exchanges(vhost.name):
                self._renew(Federated("exchange", vhost.name, exchange.name))
            for queue in self._facts.queues(vhost.name):
                self._renew(Federated("queue", vhost.name, queue.name))

    def stop(self, *, is_removed: bool) -> None:
        """End all links.   is_removed: the plug-in was disabled, else this node stops and others go on with them."""
        for of, lives in list(self._lives.items()):
            for key in list(lives):
                self._end(of, key, is_removed=is_removed)
        self._federated.clear()
        if not is_removed:
            for life in list(self._leaving):
                life.stop(is_removed=False)

    @property
    def is_idle(self) -> bool:
        """True if no link runs, and none is being removed."""
        return not self._lives and not self._leaving

    def consumers_changed(self, of: Federated) -> None:
        """Note that a queue here has other consumers, or is empty or not any more."""
        for life in list(self._lives.get(of, {}).values()):
            life.consumers_changed()

    def changed(self, event: events.Event) -> None:
        """Follow a change of the catalogue."""
        match event:
            case events.BindingAdded(binding):
                self._binding_changed(binding, is_new=True)
            case events.BindingRemoved(binding):
                self._binding_changed(binding, is_new=False)
            case events.QueueCreated(queue) | events.QueueDeleted(queue):
                self._renew(Federated("queue", queue.vhost, queue.name))
            case events.ViewChanged(_, queue) if event.is_move:
                self._renew(Federated("queue", queue.vhost, queue.name))
            case events.ExchangeCreated(exchange) | events.ExchangeDeleted(exchange):
                self._renew(Federated("exchange", exchange.vhost, exchange.name))
            case events.PolicyChanged(vhost, queues, exchanges):
                for name in exchanges:
                    self._renew(Federated("exchange", vhost, name))
                for name in queues:
                    self._renew(Federated("queue", vhost, name))
            case events.ParameterChanged(None, _, name) if name == CLUSTER_NAME:
                self._name_changed()
            case events.ParameterChanged(vhost, component, _) if component in (UPSTREAM, UPSTREAM_SET):
                self._renew_all(vhost)
            case events.MemberUp() | events.MemberDown() | events.MemberPut() | events.MemberRemoved():
                self._renew_all(None)
            case events.VhostDeleted(name):
                self._federated.pop(name, None)

    def _binding_changed(self, binding: Binding, *, is_new: bool) -> None:
        lives = self._lives.get(Federated("exchange", binding.vhost, binding.source))
        if lives is not None:
            for life in list(lives.values()):
                life.binding_changed(binding, is_new=is_new)

    def _renew_all(self, vhost: str | None) -> None:
        """Look again at all that names upstreams.   vhost: None: in all of them."""
        vhosts = list(self._federated) if vhost is None else [vhost]
        for each in vhosts:
            for of in sorted(self._federated.get(each, ())):
                self._renew(of)

    def _name_changed(self) -> None:
        """Begin all links anew, as the queues upstream have other names now."""
        for life in list(self):
            life.replace(life.goal, is_removed=True)

    def _renew(self, of: Federated) -> None:
        """Start, change and end links of an exchange or queue, as they should be."""
        is_federated = federated_record(self._facts, of) is not None
        known = self._lives.get(of, {})
        if is_federated:
            self._federated.setdefault(of.vhost, set()).add(of)
        elif of in self._federated.get(of.vhost, ()):
            self._federated[of.vhost].discard(of)
        if not is_federated and not known:
            return
        wanted = {link.key: link for link in links_of(self._facts, of)}
        for key in [each for each in known if not self._is_ours(wanted, each)]:
            self._end(of, key, is_removed=key not in wanted)
        for key, link in wanted.items():
            if self._is_ours(wanted, key):
                self._run(of, key, link)

    def _is_ours(self, wanted: Mapping[LinkKey, Link], key: LinkKey) -> bool:
        return key in wanted and owner_of(self._facts, key, self._host.node) == self._host.node

    def _run(self, of: Federated, key: LinkKey, link: Link) -> None:
        lives = self._lives.setdefault(of, {})
        life = lives.get(key)
        if life is None:
            life = lives[key] = LinkLife(link, self._host, self._ended)
            if of.kind == "queue" and len(lives) == 1:
                self._host.watch(of, is_watched=True)
            if all(each.link.key != key for each in self._leaving):
                life.start()  # else it has to wait: the former one deletes what this one needs
        elif life.goal != link:
            life.replace(link, is_removed=not life.link.upstream.has_same_resources(link.upstream))

    def _end(self, of: Federated, key: LinkKey, *, is_removed: bool) -> None:
        lives = self._lives[of]
        life = lives.pop(key)
        if not lives:
            del self._lives[of]
            if of.kind == "queue":
                self._host.watch(of, is_watched=False)
        self._leaving.add(life)
        life.stop(is_removed=is_removed)

    def _ended(self, life: LinkLife) -> None:
        self._leaving.discard(life)
        self._ended_counters.add(life.counters)
        key = life.link.key
        successor = self._lives.get(key.of, {}).get(key)
        if successor is not None and not successor.is_started:
            successor.start()
