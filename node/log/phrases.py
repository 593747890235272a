"""Operators and scripts search for these log messages, so they have RabbitMQ's words.

One function for each message is named after the event; it returns the text, and the caller chooses level and logger:
RabbitMQ's level and category stand in the docstring ("info, default."). All text that a client or an operator
may have chosen is escaped here, so that no name can break a line or forge one. No function takes a secret.

`pid` is `log.process_tag(n)`; `name` is the connection's name, `PEER:PORT -> LOCAL:PORT`, once it is known
followed by ` - ` and the client's own name (`connection_name`). Source: management §6.3, rabbit_reader.erl,
rabbit_channel.erl v3.10.8.
"""

from collections.abc import Sequence
from typing import Final

from node.amqp.constants import ReplyCode
from node.log.log import escape

_MB: Final = 1_000_000
_MIB: Final = 1 << 20

_UNKNOWN_METHOD: Final = "none"
"""The text that RabbitMQ prints when no method was being handled."""

_AMQP: Final = "AMQP"
"""The protocol of clients that speak none of a plug-in."""

# ---- connection ----


def accepting(pid: str, name: str, protocol: str = _AMQP) -> str:
    """A client sent its first bytes. info, connection; debug when it closed without any (a health check)."""
    return f"accepting {escape(protocol)} connection {pid} ({escape(name)})"


def client_provided_name(pid: str, name: str, client_provided: str) -> str:
    """The client named its connection. info, connection. `name` is still without the client's."""
    return f"connection {pid} ({escape(name)}) has a client-provided name: {escape(client_provided)}"


def authenticated(pid: str, name: str, user: str, vhost: str) -> str:
    """connection.open succeeded. info, connection."""
    return (
        f"connection {pid} ({escape(name)}): user '{escape(user)}' authenticated and granted access "
        f"to vhost '{escape(vhost)}'"
    )


def secret_updated(pid: str, name: str, user: str, reason: str) -> str:
    """connection.update-secret succeeded. info, connection."""
    return (
        f"connection {pid} ({escape(name)}): user '{escape(user)}' updated secret, reason: {escape(reason)}"
    )


def closing(
    pid: str, name: str, vhost: str | None = None, user: str | None = None, protocol: str = _AMQP
) -> str:
    """A connection ended in good order. info, connection. Without vhost: it was never opened."""
    return f"closing {escape(protocol)} connection {pid} ({_who(name, vhost, user)})"


def closed_abruptly(
    pid: str, name: str, vhost: str | None = None, user: str | None = None, protocol: str = _AMQP
) -> str:
    """The socket closed without connection.close. warning, connection; debug when no byte ever came."""
    return f"{closing(pid, name, vhost, user, protocol)}:\nclient unexpectedly closed TCP connection"


def missed_heartbeats(pid: str, name: str, heartbeat_s: int) -> str:
    """Nothing came for two heartbeat intervals. error, connection."""
    return f"{closing(pid, name)}:\nmissed heartbeats from client, timeout: {heartbeat_s}s"


def handshake_timeout(pid: str, name: str, state: str, protocol: str = _AMQP) -> str:
    """The handshake took longer than `handshake_timeout`. error, connection. `state`: the state that it reached."""
    return f"{closing(pid, name, protocol=protocol)}:\n{{handshake_timeout,{state}}}"


def handshake_error(pid: str, name: str, state: str, explanation: str) -> str:
    """Anything else failed before connection.open, and the client gets no answer. error, connection."""
    return f"{closing(pid, name)}:\n{{handshake_error,{state},0,{escape(explanation)}}}"


def socket_error(pid: str, reason: str) -> str:
    """A TLS or socket error before AMQP began, or a bad PROXY header. error, connection."""
    return f"Error on AMQP connection {pid}: {escape(reason)}"


def logged_in(user: str) -> str:
    """A user gave the right password, or a certificate. debug, default."""
    return f"User '{escape(user)}' authenticated successfully by backend rabbit_auth_backend_internal"


def login_refused(mechanism: str, reason: str) -> str:
    """Return why a login is refused, for `login_error`; the client never sees it (amqp-behaviour §1.3)."""
    return f"{mechanism} login refused: {reason}"


def login_error(pid: str, name: str, explanation: str, protocol: str = _AMQP) -> str:
    """A login was refused. error, connection."""
    return f"Error on {escape(protocol)} connection {pid} ({escape(name)}, state: starting):\n{escape(explanation)}"


def open_error(pid: str, name: str, user: str, explanation: str, protocol: str = _AMQP) -> str:
    """connection.open was refused: no such vhost, no access, a limit. error, connection."""
    return (
        f"Error on {escape(protocol)} connection {pid} ({escape(name)}, user: '{escape(user)}', state: opening):\n"
        f"{escape(explanation)}"
    )


def connection_exception(
    pid: str,
    name: str,
    vhost: str,
    user: str,
    state: str,
    channel: int,
    code: ReplyCode,
    explanation: str,
    method: str = _UNKNOWN_METHOD,
    protocol: str = _AMQP,
) -> str:
    """A hard error closed the connection. error, connection. `method`: `queue.declare`."""
    return (
        f"Error on {escape(protocol)} connection {pid} ({_who(name, vhost, user)}, state: {state}), "
        f"channel {channel}:\n"
        f' operation {method} caused a connection exception {code.name.lower()}: "{escape(explanation)}"'
    )


# ---- channel ----


def channel_exception(
    pid: str,
    name: str,
    vhost: str,
    user: str,
    channel: int,
    code: ReplyCode,
    explanation: str,
    method: str = _UNKNOWN_METHOD,
) -> str:
    """A soft error closed a channel. error, channel."""
    return (
        f"Channel error on connection {pid} ({_who(name, vhost, user)}), channel {channel}:\n"
        f"operation {method} caused a channel exception {code.name.lower()}: {escape(explanation)}"
    )


def consumer_timeout(consumer_tag: str, channel: int, timeout_ms: int) -> str:
    """A delivery stayed unacknowledged for too long. warning, channel."""
    return (
        f"Consumer {escape(consumer_tag)} on channel {channel} has timed out waiting for delivery "
        f"acknowledgement. Timeout used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )


# ---- alarms ----

_BANNER: Final = "*** Publishers will be blocked until this alarm clears ***"


def alarm_set(node: str, resource: str) -> str:
    """A node has too little memory or disk. warning, default. `resource`: memory or disk."""
    frame = "*" * len(_BANNER)
    return f"{escape(resource)} resource limit alarm set on node '{escape(node)}'.\n\n{frame}\n{_BANNER}\n{frame}\n"


def alarm_cleared(node: str, resource: str) -> str:
    """A node has enough memory or disk again. warning, default."""
    return f"{escape(resource)} resource limit alarm cleared on node '{escape(node)}'"


def alarm_cleared_everywhere(resource: str) -> str:
    """No node has this alarm any more. warning, default."""
    return f"{escape(resource)} resource limit alarm cleared across the cluster"


def memory_limit(limit_bytes: int, total_bytes: int) -> str:
    """The limit of the node's memory was set: at the start, and when it is changed. info, default."""
    limit_mib, total_mib = limit_bytes // _MIB, total_bytes // _MIB
    return (
        f"Memory high watermark set to {limit_mib} MiB ({limit_bytes} bytes) "
        f"of {total_mib} MiB ({total_bytes} bytes) total"
    )


def memory_high(used_bytes: int, limit_bytes: int) -> str:
    """The node uses more memory than the limit; `alarm_set` follows. info, default."""
    return f"vm_memory_high_watermark set. Memory used:{used_bytes} allowed:{limit_bytes}"


def memory_normal(used_bytes: int, limit_bytes: int) -> str:
    """The node uses less memory than the limit again; `alarm_cleared` follows. info, default."""
    return f"vm_memory_high_watermark clear. Memory used:{used_bytes} allowed:{limit_bytes}"


def disk_limit(limit_bytes: int) -> str:
    """The limit of free disk space was set: at the start, and when it is changed. info, default."""
    return f"Disk free limit set to {limit_bytes // _MB}MB"


def disk_low(free_bytes: int, limit_bytes: int) -> str:
    """The disk has less free space than the limit; `alarm_set` follows. info, default."""
    return f"Free disk space is insufficient. Free bytes: {free_bytes}. Limit: {limit_bytes}"


def disk_enough(free_bytes: int, limit_bytes: int) -> str:
    """The disk has enough free space again; `alarm_cleared` follows. info, default."""
    return f"Free disk space is sufficient. Free bytes: {free_bytes}. Limit: {limit_bytes}"


# ---- the disk ----


def store_starting(directory: str) -> str:
    """The node is about to read its store. info, default."""
    return f"Starting message stores in directory '{escape(directory)}'"


def store_rebuilding(directory: str) -> str:
    """The node was not stopped in good order, so it reads the whole store. warning, default."""
    return f'Message store "{escape(directory)}": rebuilding indices from scratch'


def queues_recovered(queue_count: int, took_ms: int) -> str:
    """All queues are recovered. info, default."""
    return f"Recovering {queue_count} queues of type rabbit_classic_queue took {took_ms}ms"


def messages_recovered(message_count: int, body_bytes: int) -> str:
    """The queues' messages are recovered. info, default."""
    return f"Recovered {message_count} messages with {body_bytes} bytes of bodies"


def disk_full(reason: str) -> str:
    """A write found no room: it is repeated until it succeeds, and publishers wait. error, default."""
    return f"No space left for the message store: {escape(reason)}. Writing continues when there is room"


def disk_resumed(waited_s: float) -> str:
    """The store has room to write again. warning, default."""
    return f"The message store writes again, after {waited_s:.0f} s without room"


def metadata_disk_full(reason: str) -> str:
    """A write of the metadata found no room: it is repeated until it succeeds. error, default."""
    return (
        f"No space left for the metadata in raft/: {escape(reason)}. Other nodes continue, and decide about metadata "
        "without this one; declarations through this node are not answered. Writing continues when there is room"
    )


def metadata_disk_stuck(waits_s: float) -> str:
    """The disk of the metadata hangs. error, default."""
    return (
        f"The disk of the metadata in raft/ has not answered for {waits_s:.0f} s. Other nodes continue, and decide "
        "about metadata without this one; declarations through this node are not answered"
    )


def metadata_disk_resumed() -> str:
    """The disk of the metadata works again. warning, default."""
    return "The disk of the metadata in raft/ writes again"


def message_disk_stuck(waits_s: float) -> str:
    """The disk of the messages makes no progress. error, default."""
    return (
        f"The disk of the messages has not answered for {waits_s:.0f} s. Until it does this node gets no new mirrors "
        "and no masters, and hands over those that it has"
    )


def message_disk_resumed() -> str:
    """The disk of the messages works again. warning, default."""
    return "The disk of the messages writes again: this node may have mirrors and masters"


def store_broken(path: str, reason: str) -> str:
    """The disk failed in a way that more writing can't heal, and the node ends. critical, default."""
    return (
        f"Message store failed at '{escape(path)}': {escape(reason)}. "
        "It is not known which writes it has lost, so the node stops"
    )


def disk_hung(path: str) -> str:
    """The disk does not finish its writes, and the node ends without it. error, default."""
    return f"The disk of '{escape(path)}' does not answer: not all is written. Nothing of that was confirmed"


def store_stopping(directory: str) -> str:
    """The node stops and writes what is left. info, default."""
    return f"Stopping message store for directory '{escape(directory)}'"


def store_stopped(directory: str) -> str:
    """Everything is on disk. info, default."""
    return f"Message store for directory '{escape(directory)}' is stopped"


def policy_set(name: str, apply_to: str, vhost: str, pattern: str) -> str:
    """Return a line. info, default. `apply_to`: queues, exchanges or all."""
    return (
        f"Successfully set policy '{escape(name)}' matching {escape(apply_to)} names in virtual host "
        f"'{escape(vhost)}' using pattern '{escape(pattern)}'"
    )


# ---- the node ----


def starting(name: str, version: str, python: str, product: str, product_version: str) -> str:
    """The node begins, and these are its first lines. info, default. `product`: the name that clients get."""
    return (
        f"\n Starting {escape(name)} {escape(version)} on Python {escape(python)}"
        f"\n Compatible with {escape(product)} {escape(product_version)}"
    )


def settings(node: str, config_files: Sequence[str], log_places: Sequence[str], data_dir: str) -> str:
    """The node names its files and directories. info, default."""
    rows = [
        ("node", (node,)),
        ("config file(s)", config_files),
        ("log(s)", log_places),
        ("database dir", (data_dir,)),
    ]
    lines = [
        f" {title if number == 0 else '':<15}: {escape(value)}"
        for title, values in rows
        for number, value in enumerate(values or ("(none)",))
    ]
    return "\n" + "\n".join(lines)


def unused_settings(keys: Sequence[str]) -> str:
    """Settings were given for features of RabbitMQ that this version lacks. warning, default."""
    return f"Accepted, but without effect in this version: {', '.join(map(escape, keys))}"


def file_handles(files: int, sockets: int) -> str:
    """The limit of open files is known. info, default."""
    return f"Limiting to approx {files} file handles ({sockets} sockets)"


def will_seed() -> str:
    """The database is empty, and gets the default vhost and user. info, default."""
    return "Will seed default virtual host and user..."


def will_not_seed() -> str:
    """The database is not seeded, as it is not empty or definitions are to be loaded. info, default."""
    return "Will not seed default virtual host and user: have definitions to load..."


def vhost_added(vhost: str, description: str = "", tags: Sequence[str] = ()) -> str:
    """Return a line. info, default."""
    if not description:
        return f"Adding vhost '{escape(vhost)}' without a description"
    return f"Adding vhost '{escape(vhost)}' (description: '{escape(description)}', tags: {_words(tags)})"


def vhost_deleted(vhost: str) -> str:
    """Return a line. info, default."""
    return f"Deleting vhost '{escape(vhost)}'"


def user_created(user: str) -> str:
    """Return a line. info, default."""
    return f"Created user '{escape(user)}'"


def user_deleted(user: str) -> str:
    """Return a line. info, default."""
    return f"Deleted user '{escape(user)}'"


def user_tags_set(user: str, tags: Sequence[str]) -> str:
    """Return a line. info, default."""
    return f"Successfully set user tags for user '{escape(user)}' to {_words(tags)}"


def permissions_set(user: str, vhost: str, configure: str, write: str, read: str) -> str:
    """Return a line. info, default."""
    return (
        f"Successfully set permissions for '{escape(user)}' in virtual host '{escape(vhost)}' "
        f"to '{escape(configure)}', '{escape(write)}', '{escape(read)}'"
    )


def listener_started(address: str, *, tls: bool = False) -> str:
    """Return a line. info, default. `address`: `[::]:5672`."""
    return f"started {'TLS (SSL)' if tls else 'TCP'} listener on {escape(address)}"


def plugin_listener_started(protocol: str, address: str, *, tls: bool) -> str:
    """Return a line. info, default.   protocol: the name of a plug-in's listener."""
    return f"started {escape(protocol)} {'TLS (SSL)' if tls else 'TCP'} listener on {escape(address)}"


def plugin_listener_stopped(protocol: str, address: str, *, tls: bool) -> str:
    """Return a line. info, default.   protocol: the name of a plug-in's listener."""
    return f"stopped {escape(protocol)} {'TLS (SSL)' if tls else 'TCP'} listener on {escape(address)}"


def listener_stopped(address: str, *, tls: bool = False) -> str:
    """Return a line. info, default."""
    return f"stopped {'TLS (SSL)' if tls else 'TCP'} listener on {escape(address)}"


def http_listener_started(protocol: str, port: int) -> str:
    """Return a line. info, default. `protocol`, as in `status`: http, https, http/prometheus, https/prometheus."""
    plugin = "Prometheus metrics" if protocol.endswith("prometheus") else "Management plugin"
    return f"{plugin}: HTTP{'S' if protocol.startswith('https') else ' (non-TLS)'} listener started on port {port}"


def startup_complete(plugins: Sequence[str]) -> str:
    """The node accepts clients. info, default.   plugins: listed one a line, the last one first as in RabbitMQ."""
    lines = [f" * {escape(name)}" for name in sorted(plugins, reverse=True)]
    return "\n".join([f"Server startup complete; {len(lines)} plugins started.", *lines])


def asked_to_stop(product: str) -> str:
    """Return a line. info, default."""
    return f"{escape(product)} is asked to stop..."


def stopped(product: str) -> str:
    """Return a line. info, default."""
    return f"Successfully stopped {escape(product)} and its dependencies"


def _who(name: str, vhost: str | None, user: str | None) -> str:
    if vhost is None or user is None:
        return escape(name)
    return f"{escape(name)}, vhost: '{escape(vhost)}', user: '{escape(user)}'"


def _words(words: Sequence[str]) -> str:
    return f"[{','.join(map(escape, words))}]"


def drain_started() -> str:
    """Return a line. warning, default."""
    return "This node is being put into maintenance (drain) mode"


def listeners_suspended() -> str:
    """Return a line. warning, default."""
    return "Suspended all listeners and will no longer accept client connections"


def drain_closed(count: int) -> str:
    """Return a line. warning, default. `count`: client connections that were open."""
    return f"Closed {count} local client connections"


def drained() -> str:
    """Return a line. info, default."""
    return "Node is ready to be shut down for maintenance or upgrade"


def revive_started() -> str:
    """Return a line. info, default."""
    return "This node is being revived from maintenance (drain) mode"


def listeners_resumed() -> str:
    """Return a line. info, default."""
    return "Resumed all listeners and will accept client connections again"


def revived() -> str:
    """Return a line. info, default."""
    return "Marked this node as back from maintenance and ready to serve clients"


def node_up(name: str) -> str:
    """Another node's broker runs. info, default."""
    return f"rabbit on node '{escape(name)}' up"


def node_down(name: str) -> str:
    """Another node's broker runs no more. info, default."""
    return f"rabbit on node '{escape(name)}' down"


def link_up(name: str) -> str:
    """A link to another node is up. info, default."""
    return f"node '{escape(name)}' up"


def link_down(name: str, reason: str) -> str:
    """The link to another node is down. info, default."""
    return f"node '{escape(name)}' down: {escape(reason)}"


def minority() -> str:
    """This node is cut off from most of the others, and stops serving. warning, default."""
    return "Cluster minority/secondary status detected - awaiting recovery"


def node_joined(name: str) -> str:
    """A node has become a member. info, default."""
    return f"Node '{escape(name)}' has joined the cluster"


def node_removed(name: str) -> str:
    """A node is no longer a member. info, default."""
    return f"Removing node '{escape(name)}' from cluster"


def clustering_with(names: Sequence[str], node_type: str) -> str:
    """This node joins a cluster. info, default."""
    return f"Clustering with {_words(names)} as {escape(node_type)} node"


def resetting(*, is_forced: bool) -> str:
    """Return a line. info, default."""
    return "Resetting Rabbit forcefully" if is_forced else "Resetting Rabbit"
