"""Bindings: listed in all ways, made, removed.

A binding has a key made of its properties, which names it among those with the same ends: the routing key, and a hash
of the arguments, the same on every node and after every start.
Source: management §1.5.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote_plus

from node.amqp.field_table import Table, encode_table
from node.amqp.methods import ExchangeBind, ExchangeUnbind, QueueBind, QueueUnbind
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import DEFAULT_EXCHANGE, Binding, ResourceKind, implicit_binding
from node.definitions import rows
from node.management import values
from node.management.call import Call, send
from node.management.reply import Reply, created, no_content, no_such_thing, ok
from node.management.routes import Route, exchange_name
from node.management.slicing import applied, mapped

DEFAULT_SORT: Final = ("vhost", "source", "destination", "routing_key", "properties_key")
HASH_BYTES: Final = 4
NO_PROPERTIES: Final = "~"
_KINDS: Final[dict[str, ResourceKind]] = {"q": "queue", "e": "exchange"}


# --- keys ---


def properties_key(binding: Binding) -> str:
    """Return the key of a binding among those with the same ends. `~` stands in it only before a hash, or alone."""
    key = _quote_plus(binding.routing_key)
    if not binding.arguments:
        return key or NO_PROPERTIES
    return f"{key}{NO_PROPERTIES}{_hash(binding.arguments)}"


def _quote_plus(text: str) -> str:
    return quote_plus(text.encode("utf-8", "surrogateescape")).replace("~", "%7E")


def _hash(arguments: Table) -> str:
    """Return a hash of the arguments in any order, with their types."""
    ordered = {key: arguments[key] for key in sorted(arguments)}
    digest = hashlib.sha256(encode_table(ordered)).digest()[:HASH_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def key_of_path(segment: str) -> str:
    """Return the key in a segment of a path. Routing keys that the client encoded only once are understood, too."""
    if NO_PROPERTIES not in segment:
        return _quote_plus(unquote_plus(segment, errors="surrogateescape"))
    routing_key, tilde, digest = segment.rpartition(NO_PROPERTIES)
    return f"{_quote_plus(unquote_plus(routing_key, errors='surrogateescape'))}{tilde}{digest}"


def location(binding: Binding) -> str:
    """Return the address of a new binding, relative to the path of its ends; its key is encoded once more, as a
    segment.
    """
    return f"{quote(binding.destination, safe='~')}/{quote(properties_key(binding), safe='~')}"


# --- rows ---


def binding_row(binding: Binding) -> dict[str, Any]:
    """Return a binding as it is shown."""
    return {**rows.binding_row(binding), "properties_key": properties_key(binding)}


async def _listed(call: Call, bindings: Sequence[Binding], other_end: str | None = None) -> Reply:
    """Answer with a list of bindings.

    other_end: of a list that can be paged, the field that is not the same in all rows: a filter looks at it and at
    the routing key.
    """
    listing = call.listing(can_page=other_end is not None)
    names = ("routing_key", other_end or "name")
    return ok(await applied(listing, await mapped(binding_row, bindings), DEFAULT_SORT, names))


async def list_bindings(call: Call) -> Reply:
    """GET /bindings, /bindings/{vhost}."""
    catalogue, vhosts = call.catalogue, list(call.vhosts())
    explicit = [
        binding
        for vhost in vhosts
        for exchange in catalogue.exchanges(vhost)
        for binding in catalogue.bindings_from(vhost, exchange.name)
    ]
    queues = [queue for vhost in vhosts for queue in catalogue.queues(vhost)]
    return await _listed(call, [*await mapped(implicit_binding, queues), *explicit])


async def list_of_queue(call: Call) -> Reply:
    """GET /queues/{vhost}/{name}/bindings: those that lead to it, the implicit one among them."""
    vhost = call.vhost(call.path["vhost"])
    return await _listed(call, _leading_to(call.catalogue, vhost, "queue", call.path["name"]), "source")


async def list_from_source(call: Call) -> Reply:
    """GET /exchanges/{vhost}/{name}/bindings/source."""
    vhost = call.vhost(call.path["vhost"])
    source = exchange_name(call.path["name"])
    if source == DEFAULT_EXCHANGE:
        implicit = await mapped(implicit_binding, list(call.catalogue.queues(vhost)))
        return await _listed(call, implicit, "destination")
    return await _listed(call, list(call.catalogue.bindings_from(vhost, source)), "destination")


async def list_to_destination(call: Call) -> Reply:
    """GET /exchanges/{vhost}/{name}/bindings/destination."""
    vhost = call.vhost(call.path["vhost"])
    return await _listed(
        call, _leading_to(call.catalogue, vhost, "exchange", exchange_name(call.path["name"])), "source"
    )


def _leading_to(catalogue: Catalogue, vhost: str, kind: ResourceKind, name: str) -> list[Binding]:
    queue = catalogue.queue(vhost, name) if kind == "queue" else None
    implicit = [] if queue is None else [implicit_binding(queue)]
    return [*implicit, *catalogue.bindings_to(vhost, kind, name)]


# --- between two ends ---


def _ends(call: Call) -> tuple[str, ResourceKind, str]:
    """Return the source, and kind and name of the destination. Raises: ApiError (404)."""
    kind = _KINDS.get(call.path["kind"])
    if kind is None:
        raise no_such_thing()
    destination = call.path["destination"]
    return (
        exchange_name(call.path["source"]),
        kind,
        exchange_name(destination) if kind == "exchange" else destination,
    )


def _between(call: Call, vhost: str) -> list[Binding]:
    source, kind, destination = _ends(call)
    leading = _leading_to(call.catalogue, vhost, kind, destination)
    return [binding for binding in leading if binding.source == source]


async def list_between(call: Call) -> Reply:
    """GET /bindings/{vhost}/e/{source}/{q or e}/{destination}."""
    return await _listed(call, _between(call, call.vhost(call.path["vhost"])))


async def bind(call: Call) -> Reply:
    """POST on the same path: create a binding, which may exist already, and answer with its location."""
    vhost = values.vhost_to_change(call)
    source, kind, destination = _ends(call)
    body = await call.body()
    key, arguments = values.text(body, "routing_key"), values.arguments(body)
    values.name(source, "exchange")
    values.name(destination, kind)
    await send(
        call,
        vhost,
        QueueBind(queue=destination, exchange=source, routing_key=key, arguments=arguments)
        if kind == "queue"
        else ExchangeBind(destination=destination, source=source, routing_key=key, arguments=arguments),
    )
    return created(location(Binding(vhost, source, kind, destination, key, arguments)))


def _binding(call: Call) -> Binding:
    """Return the binding of the path. Raises: ApiError (404, 401)."""
    wanted = key_of_path(call.path["properties"])
    for binding in _between(call, call.vhost(call.path["vhost"])):
        if properties_key(binding) == wanted:
            return binding
    raise no_such_thing()


async def get_binding(call: Call) -> Reply:
    """GET /bindings/{vhost}/e/{source}/{q or e}/{destination}/{properties}."""
    return ok(binding_row(_binding(call)))


async def unbind(call: Call) -> Reply:
    """DELETE on the same path: remove a binding."""
    found = _binding(call)
    source, name, key, arguments = found.source, found.destination, found.routing_key, found.arguments
    await send(
        call,
        found.vhost,
        QueueUnbind(queue=name, exchange=source, routing_key=key, arguments=arguments)
        if found.destination_kind == "queue"
        else ExchangeUnbind(destination=name, source=source, routing_key=key, arguments=arguments),
    )
    return no_content()


_BETWEEN: Final = "/bindings/{vhost}/e/{source}/{kind}/{destination}"

ROUTES: Final = (
    Route("GET", "/bindings", list_bindings, is_long=True),
    Route("GET", "/bindings/{vhost}", list_bindings, is_long=True),
    Route("GET", "/queues/{vhost}/{name}/bindings", list_of_queue, is_long=True),
    Route("GET", "/exchanges/{vhost}/{name}/bindings/source", list_from_source, is_long=True),
    Route("GET", "/exchanges/{vhost}/{name}/bindings/destination", list_to_destination, is_long=True),
    Route("GET", _BETWEEN, list_between, is_long=True),
    Route("POST", _BETWEEN, bind),
    Route("GET", _BETWEEN + "/{properties}", get_binding),
    Route("DELETE", _BETWEEN + "/{properties}", unbind),
)
