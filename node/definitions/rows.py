"""Objects of the catalogue as definitions documents and the HTTP API have them. Source: management §1.9-§2.2.

`node.definitions.users` has those of users.
"""

from collections.abc import Iterator

from node.amqp.plain import plain_table
from node.catalogue.catalogue import Catalogue
from node.catalogue.parameters import OPERATOR_POLICY, POLICY
from node.catalogue.records import (
    Binding,
    Exchange,
    Json,
    Permission,
    Policy,
    QueueRecord,
    TopicPermission,
    Vhost,
)

Row = dict[str, Json]


def vhost_metadata(vhost: Vhost) -> Row:
    """Return the metadata of a vhost."""
    found: Row = {"description": vhost.description, "tags": list(vhost.tags)}
    if vhost.default_queue_type:
        found["default_queue_type"] = vhost.default_queue_type
    return found


def permission_row(permission: Permission) -> Row:
    """Return a user's permissions in a vhost."""
    return {
        "user": permission.user,
        "vhost": permission.vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def topic_permission_row(permission: TopicPermission) -> Row:
    """Return a user's permissions on an exchange."""
    return {
        "user": permission.user,
        "vhost": permission.vhost,
        "exchange": permission.exchange,
        "write": permission.write,
        "read": permission.read,
    }


def policy_row(policy: Policy) -> Row:
    """Return a policy of a user or of an operator."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def parameter_rows(catalogue: Catalogue, vhost: str) -> Iterator[Row]:
    """Yield the runtime parameters of a vhost. Operator policies are among them, those of users are not."""
    for (component, name), value in catalogue.parameters(vhost).items():
        yield {"value": value, "vhost": vhost, "component": component, "name": name}
    yield from policy_parameters(catalogue, vhost, is_operator=True)


def policy_parameters(catalogue: Catalogue, vhost: str, *, is_operator: bool) -> Iterator[Row]:
    """Yield the policies of a vhost as the runtime parameters that they are in RabbitMQ."""
    for policy in catalogue.policies(vhost, operator=is_operator):
        value: Row = {
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }
        component = OPERATOR_POLICY if is_operator else POLICY
        yield {"value": value, "vhost": vhost, "component": component, "name": policy.name}


def queue_row(queue: QueueRecord) -> Row:
    """Return a queue's declaration."""
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": plain_table(queue.arguments),
    }


def exchange_row(exchange: Exchange) -> Row:
    """Return an exchange's declaration."""
    return {
        "name": exchange.name,
        "vhost": exchange.vhost,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain_table(exchange.arguments),
    }


def binding_row(binding: Binding) -> Row:
    """Return a binding's source, destination, key and arguments."""
    return {
        "source": binding.source,
        "vhost": binding.vhost,
        "destination": binding.destination,
        "destination_type": binding.destination_kind,
        "routing_key": binding.routing_key,
        "arguments": plain_table(binding.arguments),
    }
