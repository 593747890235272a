"""The two ends of a migration: where their APIs and AMQP ports are, and at which of them the shovels run.

No address here has a password.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from node.catalogue.records import Json
from node.migrate.answers import inner, text, texts
from node.migrate.percent import encoded
from node.migrate.site import Site

Host = Literal["rabbitmq", "fluffle"]
"""The end whose shovels carry the messages."""

Direction = Literal["out", "back"]
"""From RabbitMQ to Fluffle, or back."""

SHOVEL_PLUGIN: Final = "rabbitmq_shovel"

ENDS_MAX: Final = 16
"""The most AMQP addresses of one end."""


@dataclass(frozen=True, slots=True)
class End:
    """One broker.

    urls: of its API at one or several nodes, without /api.   amqp: `host:port` of its nodes as the other end reaches
    them, with `amqps://` in front for TLS.
    """

    urls: tuple[str, ...]
    amqp: tuple[str, ...]
    product: str = ""
    version: str = ""
    cluster_name: str = ""

    @property
    def url(self) -> str:
        """The first URL of its API."""
        return self.urls[0]

    def as_json(self) -> dict[str, Json]:
        """Return the end as an object of a plan."""
        return {
            "urls": list(self.urls),
            "amqp": list(self.amqp),
            "product": self.product,
            "version": self.version,
            "cluster_name": self.cluster_name,
        }

    def uris(self, user: str, password: str, vhost: str) -> list[str]:
        """Return AMQP URIs with a name and a password, which are secrets."""
        who = f"{encoded(user)}:{encoded(password)}"
        found = []
        for address in self.amqp:
            scheme, separator, place = address.rpartition("://")
            found.append(f"{scheme if separator else 'amqp'}://{who}@{place}/{encoded(vhost)}")
        return found


def end_from_json(row: Mapping[str, Json], key: str) -> End | None:
    """Return the end of a plan; None if there is none. Raises: ValueError."""
    if row.get(key) is None:
        return None
    found = inner(row, key)
    urls = texts(found.get("urls"))
    if not urls:
        raise ValueError(f"{key} has no URL")
    return End(
        urls,
        texts(found.get("amqp")),
        text(found, "product"),
        text(found, "version"),
        text(found, "cluster_name"),
    )


def end(urls: tuple[str, ...], host: str, site: Site, given: tuple[str, ...] = ()) -> End:
    """Return the end of a site.

    host: of the first URL.   given: AMQP addresses that the operator named; without them, the ports of the site's
    listeners, at the addresses that they are bound to, or at `host` where that is any.
    """
    found = dict.fromkeys(given)
    if not found:
        for listener in site.ports("amqp"):
            address = listener.address
            is_any = address in ("", "0.0.0.0", "::", "[::]")
            name = _host_of(listener.node, host) if is_any else address
            found[f"[{name}]:{listener.port}" if ":" in name else f"{name}:{listener.port}"] = None
    return End(urls, tuple(found)[:ENDS_MAX], site.product, site.version, site.cluster_name)


def _host_of(node: str, host: str) -> str:
    """Return the host of a node that listens everywhere: its name's, if that is one that others can resolve."""
    name = node.partition("@")[2]
    return name if "." in name else host


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends.   host: where the shovels run."""

    rabbitmq: End
    fluffle: End
    host: Host

    def source(self, direction: Direction) -> End:
        """Return the end that messages leave."""
        return self.rabbitmq if direction == "out" else self.fluffle

    def target(self, direction: Direction) -> End:
        """Return the end that messages go to."""
        return self.fluffle if direction == "out" else self.rabbitmq


def shovel_host(source: Site, target: Site | None) -> Host | None:
    """Return the end that can run shovels; None if neither has the plug-in enabled. Fluffle's own go first: nothing has
    to be changed at RabbitMQ, whose user needs no more than reading for them.
    """
    if target is not None and SHOVEL_PLUGIN in target.plugins:
        return "fluffle"
    return "rabbitmq" if SHOVEL_PLUGIN in source.plugins else None


def host_from_json(row: Mapping[str, Json]) -> Host | None:
    """Return the host of shovels in a plan. Raises: ValueError."""
    found = row.get("shovels_at")
    if found not in (None, "rabbitmq", "fluffle"):
        raise ValueError("shovels_at is rabbitmq or fluffle")
    return cast("Host | None", found)
