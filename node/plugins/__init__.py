"""Plug-ins: the names that a plug-in imports, in one place. docs/plugins.md shows how one is written.

    from node.plugins import ExchangeType, Plugin

The built-in plug-ins stand in `node.plugins.exchanges`. They use these names and nothing else of the broker, are
imported when they are enabled, and import nothing of each other's.
"""

from node.amqp.erlang import binary_literal
from node.amqp.field_table import Field, Table, longstr
from node.amqp.properties import Properties
from node.catalogue.binding_key import BindingKey, binding_key
from node.catalogue.records import Binding
from node.extension.auth_backend import (
    AuthBackend,
    AuthExchange,
    AuthStart,
    Challenge,
    Identity,
    Login,
    Proof,
    Question,
    ResourceAccess,
    TopicAccess,
    VhostAccess,
)
from node.extension.delivery_interceptor import DeliveryInterceptor, DeliveryTarget, OutgoingMessage
from node.extension.http import HttpAnswer, HttpRequest, HttpResource, UiPage
from node.extension.interceptor import InterceptedMessage, MessageInterceptor, PublishTarget
from node.extension.peer_discovery import ClusterPeer, PeerDiscovery
from node.extension.protocol import (
    Authenticated,
    Delivery,
    Peer,
    ProtocolConnection,
    ProtocolListener,
    QueueBinding,
    QueueFacts,
    Refusal,
    Session,
)
from node.extension.setting import Setting, Settings
from node.extension.telemetry import TelemetryColumns
from node.routing.exchanges import Destination, destination_of
from node.routing.plugins import ExchangeIndex, ExchangeType, Message, Plugin, Surroundings
from node.version import VERSION

__all__ = [
    "VERSION",
    "AuthBackend",
    "AuthExchange",
    "AuthStart",
    "Authenticated",
    "Binding",
    "BindingKey",
    "Challenge",
    "ClusterPeer",
    "Delivery",
    "DeliveryInterceptor",
    "DeliveryTarget",
    "Destination",
    "ExchangeIndex",
    "ExchangeType",
    "Field",
    "HttpAnswer",
    "HttpRequest",
    "HttpResource",
    "Identity",
    "InterceptedMessage",
    "Login",
    "Message",
    "MessageInterceptor",
    "OutgoingMessage",
    "Peer",
    "PeerDiscovery",
    "Plugin",
    "Proof",
    "Properties",
    "ProtocolConnection",
    "ProtocolListener",
    "PublishTarget",
    "Question",
    "QueueBinding",
    "QueueFacts",
    "Refusal",
    "ResourceAccess",
    "Session",
    "Setting",
    "Settings",
    "Surroundings",
    "Table",
    "TelemetryColumns",
    "TopicAccess",
    "UiPage",
    "VhostAccess",
    "binary_literal",
    "binding_key",
    "destination_of",
    "longstr",
]
