"""Workloads of MQTT 3.1.1, on Fluffle, RabbitMQ and Mosquitto: the plug-ins of the first two, and the third as it is.

The plug-in is enabled by the file of enabled plug-ins, and the server starts again with a port for it. Sessions are
clean. RabbitMQ has no QoS 2. bench/mqtt_client.py has the packets.
"""

import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence

from bench.client import BenchError
from bench.flow import AHEAD_COUNT_MAX, RECEIVE_TIMEOUT_S, STALL_S
from bench.frames import numbered_body
from bench.mosquitto import IN_FLIGHT, Mosquitto
from bench.mqtt_client import (
    ACK_BYTES,
    BODY_BYTES,
    CONNACK,
    PACKET_IDS,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    MqttSocket,
    acks,
    connect_packet,
    cycle,
    kinds,
    publish_packet,
    shape,
    split,
    turned,
)
from bench.report import AtLeast, NotAbove, NotBelow, Row, percentile
from bench.servers import Meter, RabbitMQ, Server, free_port
from bench.workloads import CHUNK_BYTES, Outcome, Scale, Workload

TOPIC = "bench/t"
READ_BYTES = 262_144
SUBSCRIBERS = 100
IDLE_CONNECTIONS = 10_000
AT_ONCE = 100
"""The connections of `mqtt-idle-10k` that are opened at a time."""

STORM_RATE = 1000
"""The connections a second of `mqtt-storm`."""

PACED_RATE = 1000
"""The messages a second of `mqtt-paced-1000`."""

FAN_OUT_AHEAD = 200
"""The most messages of `mqtt-fanout-100` on their way, each to 100 subscribers."""


def mqtt_port(server: Server) -> int:
    """Return the port for clients of MQTT; start the server again with its plug-in, if it needs one."""
    if isinstance(server, Mosquitto):
        return server.port
    port = free_port()
    (server.directory / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
    listener = f"mqtt.listeners.tcp.1 = 127.0.0.1:{port}"
    server.restart(settings=[*server.settings, listener, f"mqtt.prefetch = {IN_FLIGHT}"])
    return port


def _outcome(meter: Meter, count: int, **metrics: float) -> Outcome:
    return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


# -- one publisher, one subscriber ---------------------------------------------------------------------


class Receiver:
    """A subscriber that acknowledges what it gets, in a thread.   count: the messages so far.

    fault: what went wrong.   completed: with QoS 2, the messages whose PUBREL has come.
    """

    def __init__(self, connection: MqttSocket, qos: int) -> None:
        self.count = 0
        self.completed = 0
        self.fault: str | None = None
        self.last_at = 0.0
        self._socket = connection.socket
        self._qos = qos
        self._shape = shape(TOPIC, qos)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._socket.settimeout(RECEIVE_TIMEOUT_S)
        rest = b""
        while not self._is_over:
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            try:
                if not data:
                    raise BenchError("the broker closed the connection")
                rest = self._take(rest + data)
            except (BenchError, OSError) as error:
                self.fault = str(error)
                return

    def _take(self, data: bytes) -> bytes:
        publishes, answers, rest = split(data, self._shape)
        if publishes:
            at = self._shape.id_at + 2
            number = int(publishes[at : at + 8], 16)
            if number != self.count % PACKET_IDS:
                raise BenchError(f"message {self.count % PACKET_IDS} was expected, and {number} came")
            if self._qos:
                self._socket.sendall(acks(PUBACK if self._qos == 1 else PUBREC, publishes, self._shape))
            self.count += len(publishes) // self._shape.size_bytes
            self.last_at = time.perf_counter()
        if answers:
            self._socket.sendall(turned(PUBCOMP, answers))
            self.completed += len(answers) // ACK_BYTES
        return rest

    def wait_for(self, count: int) -> None:
        """Wait until so many messages have come. Raises: BenchError if more come, or no more."""
        seen, seen_at = -1, time.perf_counter()
        while self.count < count or (self._qos == 2 and self.completed < count):
            time.sleep(0.0005)
            self.check()
            if self.count + self.completed != seen:
                seen, seen_at = self.count + self.completed, time.perf_counter()
            elif time.perf_counter() > seen_at + STALL_S:
                raise BenchError(f"{count} messages were expected, and {self.count} came")
        if self.count > count:
            raise BenchError(f"{count} messages were expected, and {self.count} came")

    def check(self) -> None:
        """Raise BenchError if anything went wrong."""
        if self.fault is not None:
            raise BenchError(self.fault)

    def end(self) -> None:
        """Stop receiving."""
        self._is_over = True
        self._thread.join()


def qos_0(server: Server, scale: Scale) -> Outcome:
    """Publish with QoS 0, at most `AHEAD_COUNT_MAX` messages ahead; the rate is that of the messages received."""
    port = mqtt_port(server)
    with MqttSocket(port, "publisher") as publisher, MqttSocket(port, "subscriber") as subscriber:
        subscriber.subscribe(TOPIC, 0)
        prepared = memoryview(cycle(TOPIC, 0, PACKET_IDS))
        in_chunk = next(
            size for size in range(CHUNK_BYTES // shape(TOPIC, 0).size_bytes, 0, -1) if not PACKET_IDS % size
        )
        chunk_bytes = in_chunk * shape(TOPIC, 0).size_bytes
        receiver = Receiver(subscriber, 0)
        sent = 0
        publisher.socket.settimeout(None)
        with Meter(server) as meter:
            deadline = meter.started_at + scale.seconds
            while time.perf_counter() < deadline:
                while sent - receiver.count > AHEAD_COUNT_MAX:
                    receiver.check()
                    time.sleep(0.0005)
                at = sent % PACKET_IDS // in_chunk * chunk_bytes
                publisher.socket.sendall(prepared[at : at + chunk_bytes])
                sent += in_chunk
            receiver.wait_for(sent)
        receiver.end()
    return _outcome(meter, sent, rate=sent / (receiver.last_at - meter.started_at))


class Window:
    """A publisher with QoS 1 or 2 that has at most `IN_FLIGHT` messages which are not acknowledged.

    sent, completed: the numbers of messages.
    """

    def __init__(self, connection: MqttSocket, qos: int) -> None:
        self.sent = self.completed = 0
        self._socket = connection.socket
        self._qos = qos
        self._size = shape(TOPIC, qos).size_bytes
        self._prepared = memoryview(cycle(TOPIC, qos, PACKET_IDS))
        self._rest = b""

    def fill(self) -> None:
        """Send as many messages as the window has room for."""
        at = self.sent % PACKET_IDS
        count = min(IN_FLIGHT - (self.sent - self.completed), PACKET_IDS - at)
        if count:
            self._socket.sendall(self._prepared[at * self._size : (at + count) * self._size])
            self.sent += count

    def receive(self) -> None:
        """Take the answers that have come, one at least. Raises: BenchError, also if none comes."""
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise BenchError(f"{self.sent} messages sent, {self.completed} completed") from None
        if not data:
            raise BenchError("the broker closed the connection")
        data = self._rest + data
        whole = len(data) - len(data) % ACK_BYTES
        self._rest = data[whole:]
        for first, answers in kinds(data[:whole]):
            if first == PUBREC and self._qos == 2:
                self._socket.sendall(turned(PUBREL, answers))
            elif first == (PUBACK if self._qos == 1 else PUBCOMP):
                self.completed += len(answers) // ACK_BYTES
            else:
                raise BenchError(f"an answer that was not expected: {answers[:16]!r}")


def with_qos(server: Server, scale: Scale, qos: int) -> Outcome:
    """Publish with QoS 1 or 2; the rate is that of the messages received."""
    port = mqtt_port(server)
    with MqttSocket(port, "publisher") as publisher, MqttSocket(port, "subscriber") as subscriber:
        subscriber.subscribe(TOPIC, qos)
        receiver = Receiver(subscriber, qos)
        window = Window(publisher, qos)
        with Meter(server) as meter:
            deadline = meter.started_at + scale.seconds
            while time.perf_counter() < deadline:
                window.fill()
                window.receive()
                receiver.check()
            while window.completed < window.sent:
                window.receive()
            receiver.wait_for(window.sent)
        receiver.end()
    return _outcome(meter, window.sent, rate=window.sent / (receiver.last_at - meter.started_at))


def qos_1(server: Server, scale: Scale) -> Outcome:
    """Publish and subscribe with QoS 1."""
    return with_qos(server, scale, 1)


def qos_2(server: Server, scale: Scale) -> Outcome:
    """Publish and subscribe with QoS 2."""
    return with_qos(server, scale, 2)


# -- one publisher, many subscribers -------------------------------------------------------------------


def fan_out(server: Server, scale: Scale) -> Outcome:
    """Publish with QoS 0 to 100 subscribers; the rate is that of the deliveries."""
    port = mqtt_port(server)
    size = shape(TOPIC, 0).size_bytes
    subscribers = [MqttSocket(port, f"subscriber-{i}") for i in range(SUBSCRIBERS)]
    publisher = MqttSocket(port, "publisher")
    prepared = memoryview(cycle(TOPIC, 0, PACKET_IDS))
    in_chunk = FAN_OUT_AHEAD // 4
    received = dict.fromkeys(range(SUBSCRIBERS), 0)
    sent = done = 0
    with selectors.DefaultSelector() as selector:
        for number, each in enumerate(subscribers):
            each.subscribe(TOPIC, 0)
            selector.register(each.socket, selectors.EVENT_READ, number)
        with Meter(server) as meter:
            deadline = meter.started_at + scale.seconds
            is_sending = True
            while is_sending or done < sent * SUBSCRIBERS * size:
                is_sending = is_sending and time.perf_counter() < deadline
                while is_sending and sent - done // (SUBSCRIBERS * size) <= FAN_OUT_AHEAD - in_chunk:
                    at = sent % PACKET_IDS * size
                    publisher.socket.sendall(prepared[at : at + in_chunk * size])
                    sent += in_chunk
                ready = selector.select(STALL_S)
                if not ready:
                    raise BenchError(f"{sent} messages sent, {done // size} deliveries")
                for key, _ in ready:
                    data = key.fileobj.recv(READ_BYTES)  # type: ignore[union-attr]
                    if not data:
                        raise BenchError("the broker closed a connection")
                    received[key.data] += len(data)
                    done += len(data)
            elapsed_s = time.perf_counter() - meter.started_at
    if set(received.values()) != {sent * size}:
        raise BenchError("a subscriber got more or less than every message once")
    for each in (*subscribers, publisher):
        each.close()
    return _outcome(meter, sent, rate=sent * SUBSCRIBERS / elapsed_s)


# -- many connections ----------------------------------------------------------------------------------


def idle_connections(server: Server, scale: Scale) -> Outcome:
    """Measure the resident memory that each of 10,000 idle connections adds."""
    count = IDLE_CONNECTIONS // scale.divisor
    port = mqtt_port(server)
    opened: list[socket.socket] = []
    try:
        before = server.rss_bytes()
        with Meter(server) as meter:
            for first in range(0, count, AT_ONCE):
                fresh = [socket.create_connection(("127.0.0.1", port), STALL_S) for _ in range(AT_ONCE)]
                opened += fresh
                for number, each in enumerate(fresh, first):
                    each.sendall(connect_packet(f"idle-{number}", keep_alive_s=600))
                for each in fresh:
                    if (answer := each.recv(len(CONNACK), socket.MSG_WAITALL)) != CONNACK:
                        raise BenchError(f"no connection: {answer!r}")
            time.sleep(scale.seconds)  # RabbitMQ's idle processes hibernate, and give back memory
        added = server.rss_bytes() - before
    finally:
        for each in opened:
            each.close()
    return _outcome(meter, count, rss=added / count / 1e3)


def storm(server: Server, scale: Scale) -> Outcome:
    """Open 1,000 connections a second, which stay; measure how many are accepted a second, and how fast."""
    port = mqtt_port(server)
    count = int(STORM_RATE * scale.seconds)
    waits: list[float] = []
    opened: list[socket.socket] = []
    begun: dict[socket.socket, float] = {}
    try:
        with selectors.DefaultSelector() as selector, Meter(server) as meter:
            while len(waits) < count:
                now = time.perf_counter()
                due = meter.started_at + len(opened) / STORM_RATE
                if len(opened) < count and now >= due:
                    fresh = socket.socket()
                    fresh.setblocking(False)
                    fresh.connect_ex(("127.0.0.1", port))
                    selector.register(fresh, selectors.EVENT_WRITE)
                    begun[fresh] = now
                    opened.append(fresh)
                    continue
                pause_s = max(0.0, due - now) if len(opened) < count else STALL_S
                ready = selector.select(pause_s)
                if not ready and len(opened) == count:
                    raise BenchError(f"{len(waits)} of {count} connections were accepted")
                for key, events in ready:
                    _step(selector, key, events, opened, begun, waits)
            elapsed_s = time.perf_counter() - meter.started_at
    finally:
        for each in opened:
            each.close()
    return _outcome(meter, count, rate=count / elapsed_s, p99=percentile(waits, 99) * 1e3)


def _step(
    selector: selectors.BaseSelector,
    key: selectors.SelectorKey,
    events: int,
    opened: list[socket.socket],
    begun: dict[socket.socket, float],
    waits: list[float],
) -> None:
    """Send the CONNECT of a new connection, or take its CONNACK."""
    client = key.fileobj
    assert isinstance(client, socket.socket)
    if events & selectors.EVENT_WRITE:
        client.sendall(connect_packet(f"storm-{len(opened)}-{id(client)}", keep_alive_s=600))
        selector.modify(client, selectors.EVENT_READ)
        return
    answer = client.recv(len(CONNACK))
    if answer != CONNACK:
        raise BenchError(f"no connection: {answer!r}")
    waits.append(time.perf_counter() - begun.pop(client))
    selector.unregister(client)


# -- latency -------------------------------------------------------------------------------------------


def paced(server: Server, scale: Scale) -> Outcome:
    """Publish 1,000 messages a second with QoS 1; measure the time from each publish to its receipt."""
    port = mqtt_port(server)
    form = shape(TOPIC, 1)
    count = int(PACED_RATE * scale.seconds)
    waits: list[float] = []
    acked = sent = 0
    rest = b""
    with MqttSocket(port, "publisher") as publisher, MqttSocket(port, "subscriber") as subscriber:
        subscriber.subscribe(TOPIC, 1)
        server.wait_until_quiet()
        sockets = selectors.DefaultSelector()
        for each in (publisher, subscriber):
            sockets.register(each.socket, selectors.EVENT_READ)
        with sockets, Meter(server) as meter:
            while len(waits) < count or acked < count:
                now = time.perf_counter()
                due = meter.started_at + sent / PACED_RATE
                if sent < count and now >= due:
                    body = (
                        struct.pack(">Id", sent, time.perf_counter()) + numbered_body(sent, BODY_BYTES)[12:]
                    )
                    publisher.socket.sendall(publish_packet(TOPIC, 1, sent % PACKET_IDS + 1, body))
                    sent += 1
                ready = sockets.select(max(0.0, due - now) if sent < count else STALL_S)
                if not ready and sent == count:
                    raise BenchError(f"{count} messages sent, {len(waits)} received, {acked} acknowledged")
                for key, _ in ready:
                    data = key.fileobj.recv(READ_BYTES)  # type: ignore[union-attr]
                    now = time.perf_counter()
                    if not data:
                        raise BenchError("the broker closed a connection")
                    if key.fileobj is publisher.socket:
                        acked += len(data) // ACK_BYTES
                        continue
                    publishes, _, rest = split(rest + data, form)
                    subscriber.socket.sendall(acks(PUBACK, publishes, form))
                    for at in range(form.id_at + 2, len(publishes), form.size_bytes):
                        number, sent_at = struct.unpack_from(">Id", publishes, at)
                        if number != len(waits):
                            raise BenchError(f"message {len(waits)} was expected, and {number} came")
                        waits.append(now - sent_at)
    counted = waits[count // 10 :]
    return _outcome(meter, count, p50=percentile(counted, 50) * 1e3, p99=percentile(counted, 99) * 1e3)


def _against(rabbitmq: float | None, mosquitto: float | None, unit: str = "msg/s") -> Row:
    """Return the row of a rate with what is asked for beside each of the others."""
    beside = {} if mosquitto is None else {Mosquitto.name: AtLeast(mosquitto)}
    return Row("rate", unit, None if rabbitmq is None else AtLeast(rabbitmq), beside)


MQTT_WORKLOADS: Sequence[Workload] = (
    Workload("mqtt-qos0", qos_0, [_against(4.0, 1.0)], fresh=True, mqtt=True),
    Workload("mqtt-qos1", qos_1, [_against(4.0, 1.0)], fresh=True, mqtt=True),
    Workload("mqtt-qos2", qos_2, [_against(None, 1.0)], fresh=True, mqtt=True, lacking=[RabbitMQ.name]),
    Workload("mqtt-fanout-100", fan_out, [_against(3.0, None, "deliveries/s")], fresh=True, mqtt=True),
    Workload("mqtt-idle-10k", idle_connections, [Row("rss", "kB/conn", NotAbove())], fresh=True, mqtt=True),
    Workload(
        "mqtt-storm",
        storm,
        [
            Row(
                "rate",
                "connections/s",
                NotBelow(0.98 * STORM_RATE),
                {Mosquitto.name: NotBelow(0.98 * STORM_RATE)},
            ),
            Row("p99", "ms"),
        ],
        fresh=True,
        mqtt=True,
    ),
    Workload(
        "mqtt-paced-1000",
        paced,
        [Row("p50", "ms", NotAbove()), Row("p99", "ms", NotAbove())],
        fresh=True,
        mqtt=True,
    ),
)
