"""Runs that a plug-in's session asks for: in their order with frames, and as frames where the input is held up."""

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.frames import method_frame
from node.amqp.methods import BasicAck, BasicConsume, QueueDeclare, QueueDeclareOk
from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.client.session_input import AckRuns
from node.extension.protocol import Delivery, ProtocolConnection, ProtocolListener, Refusal, Session
from node.plugins import Properties
from tests.kit.world import World


@given(st.lists(st.integers(1, 1000), min_size=1, unique=True))
def test_acknowledgements_are_those_of_each_tag(tags: list[int]) -> None:
    assert AckRuns(1, tags).frames() == b"".join(method_frame(1, BasicAck(tag)) for tag in tags)
    assert AckRuns(1, tags).frames_bytes == len(AckRuns(1, tags).frames())
    runs = AckRuns(1, tags[:1])
    for tag in tags[1:]:
        runs.add(tag)
    assert runs.runs == AckRuns(1, tags).runs


class Echo(ProtocolConnection):
    """Does what a test calls, and notes what comes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.deliveries: list[Delivery] = []
        self.refusals: list[Refusal] = []

    def received(self, data: bytes) -> None:
        raise AssertionError

    def delivered(self, deliveries: object) -> None:
        self.deliveries += deliveries  # type: ignore[operator]

    def ended(self, reason: Refusal) -> None:
        self.refusals.append(reason)


class Listener(ProtocolListener):
    name = protocol = "echo"
    default_port = 1

    def connection(self, session: Session) -> Echo:
        self.made = Echo(session)
        return self.made


def opened(world: World) -> tuple[SessionConnection, Echo]:
    listener = Listener({})
    connection = SessionConnection(
        world.broker,
        ClientEndpoint(),
        plugin="p",
        listener=listener,
        now=world.now,
        on_change=lambda: None,
    )
    client = listener.made
    client.session.log_in("guest", b"guest", lambda refusal: None)
    client.session.open("/", lambda refusal: None)
    return connection, client


def carry_out(world: World, connection: SessionConnection) -> None:
    """Do what the shell does at the end of turns."""
    for _ in range(6):
        connection.take_output()
        world.settle()


def test_runs_and_frames_are_carried_out_in_their_order() -> None:
    world = World()
    amqp = world.client()
    amqp.ask(1, QueueDeclare(queue="q"))
    connection, client = opened(world)
    session, confirmed = client.session, list[bool]()
    session.publish("", "q", Properties(), b"1", confirmed.append)
    session.publish_run("", "q", Properties(), [b"2", b"3"], [confirmed.append] * 2)
    session.consume("q", "c", lambda: None)
    session.publish_run("", "q", Properties(), [b"4", b""])
    carry_out(world, connection)
    assert [each.body for each in client.deliveries] == [b"1", b"2", b"3", b"4", b""]
    assert confirmed == [True] * 3
    session.ack_all([each.tag for each in client.deliveries[1:]])
    session.nack(client.deliveries[0].tag, requeue=False)
    carry_out(world, connection)
    assert amqp.ask(1, QueueDeclare(queue="q", passive=True)) == QueueDeclareOk("q", 0, 1)
    session.ack_all([77])
    carry_out(world, connection)
    assert [each.code for each in client.refusals] == [406]


def test_runs_wait_where_the_input_is_held_up() -> None:
    """Frames that come behind kept ones wait with them, in their order."""
    world = World()
    amqp = world.client()
    amqp.ask(1, QueueDeclare(queue="q"))
    connection, client = opened(world)
    connection._reader.paused = True
    client.session.publish_run("", "q", Properties(), [b"1", b"2"])
    client.session.publish("", "q", Properties(), b"3")
    client.session.publish_run("", "q", Properties(), [b"4"])
    carry_out(world, connection)
    assert amqp.ask(1, QueueDeclare(queue="q", passive=True)) == QueueDeclareOk("q", 0, 0)
    connection._reader.paused = False
    connection._work_on()
    carry_out(world, connection)
    amqp.send(1, BasicConsume(queue="q", no_ack=True))
    world.settle()
    assert [each.body for each in amqp.received() if each.body] == [b"1", b"2", b"3", b"4"]


def test_a_run_without_rights_ends_the_connection() -> None:
    world = World()
    connection, client = opened(world)
    client.session.publish_run("nowhere", "k", Properties(), [b"1"])
    client.session.publish_run("", "k", Properties(), [b"2"])
    carry_out(world, connection)
    assert [each.code for each in client.refusals] == [404]
    assert connection.is_finished


@given(st.lists(st.sampled_from("qr"), min_size=1, max_size=8), st.booleans())
def test_messages_of_one_read_come_to_each_queue_in_their_order(queues: list[str], is_held: bool) -> None:
    """Messages of one address in a row are a run; with others among them they are frames."""
    world = World()
    amqp = world.client()
    for queue in "qr":
        amqp.ask(1, QueueDeclare(queue=queue))
    connection, client = opened(world)
    confirmed, plain = list[int](), Properties()
    connection._reader.paused = is_held

    def publish(data: bytes) -> None:
        for number, queue in enumerate(queues):
            on_confirm = lambda is_safe, number=number: confirmed.append(number)  # noqa: E731
            client.session.publish("", queue, plain, b"%d" % number, on_confirm)

    client.received = publish  # type: ignore[method-assign]
    connection.receive_data(b"x", world.now)
    if is_held:
        connection._reader.paused = False
        connection._work_on()
    carry_out(world, connection)
    assert confirmed == list(range(len(queues)))
    for queue in "qr":
        amqp.send(1, BasicConsume(queue=queue, no_ack=True))
        world.settle()
        found = [int(each.body) for each in amqp.received() if each.body]
        assert found == [number for number, each in enumerate(queues) if each == queue]


@given(st.permutations(range(5)))
def test_acknowledgements_one_by_one_among_other_requests_settle_each(order: list[int]) -> None:
    """A frame among them (of the nack) has those behind it be frames, too."""
    world = World()
    amqp = world.client()
    amqp.ask(1, QueueDeclare(queue="q"))
    connection, client = opened(world)
    session, plain = client.session, Properties()
    session.publish_run("", "q", plain, [b"%d" % number for number in range(5)])
    session.consume("q", "c", lambda: None)
    carry_out(world, connection)
    tags = [each.tag for each in client.deliveries]

    def settle(data: bytes) -> None:
        for number in order:
            if number:
                session.ack(tags[number])
            else:
                session.nack(tags[number], requeue=False)
            if number == 2:
                session.publish("", "q", plain, b"more")

    client.received = settle  # type: ignore[method-assign]
    connection.receive_data(b"x", world.now)
    carry_out(world, connection)
    assert not client.refusals
    assert [each.body for each in client.deliveries[5:]] == [b"more"]
    assert world.queue("q").unacked_count == 1
    session.ack(client.deliveries[-1].tag)
    carry_out(world, connection)
    assert not world.queue("q").unacked_count
