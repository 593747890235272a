"""A real Celery worker: results over rpc://, retries, ETA, chords, revocation, remote control, lost workers."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from tests.conformance.celery_app import (
    BACKEND_VARIABLE,
    BROKER_VARIABLE,
    EXCHANGE_TYPE_VARIABLE,
    QUEUE_TYPE_VARIABLE,
    make_app,
)
from tests.kit.client_steps import TIMEOUT_S, Process, amqp_url
from tests.kit.patience import wait_until
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Server

pytestmark = pytest.mark.slow  # Each worker takes two seconds to start.

Names = Callable[[str], str]

VHOST = "celery"


class Worker:
    """A worker process; the application by which the tests talk to it."""

    def __init__(self, app: Any, process: Process, hostname: str) -> None:
        self.app = app
        self.process = process
        self.hostname = hostname

    def send(self, task: str, *arguments: Any, **options: Any) -> Any:
        """Publish a task. Returns: its AsyncResult."""
        return self.app.tasks[task].apply_async(arguments, **options)

    def call(self, task: str, *arguments: Any, **options: Any) -> Any:
        """Publish a task and wait for its result."""
        return self.send(task, *arguments, **options).get(timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def broker(server: Server) -> Iterator[str]:
    """The URL of a vhost for this file."""
    server.admin.add_vhost(VHOST)
    server.admin.set_permissions("guest", VHOST, ".*", ".*", ".*")
    yield amqp_url(server, VHOST)
    server.admin.delete_vhost(VHOST)


def is_marked(marks: Path) -> bool:
    """The task has begun and its whole mark is in the file: a file that was just made has no line yet."""
    return marks.exists() and marks.read_text().endswith("\n")


@contextlib.contextmanager
def running(
    broker: str,
    directory: Path,
    *options: str,
    queue_type: str = "classic",
    exchange_type: str = "direct",
    backend: str = "rpc://",
) -> Iterator[Worker]:
    """A worker for the time of the block, with options of `celery worker`."""
    directory.mkdir(exist_ok=True)
    hostname = f"{directory.name}@localhost"
    environment = {
        BROKER_VARIABLE: broker,
        BACKEND_VARIABLE: backend,
        QUEUE_TYPE_VARIABLE: queue_type,
        EXCHANGE_TYPE_VARIABLE: exchange_type,
    }
    command = ("-m", "celery", "-A", "tests.conformance.celery_app", "worker", "-n", hostname, "-l", "INFO")
    process = Process(directory / "log", *command, *options, environment=environment)
    app = make_app(broker, backend, queue_type, exchange_type)
    try:
        process.wait_for_output(f"{hostname} ready.")
        yield Worker(app, process, hostname)
    finally:
        process.end()
        app.close()


@pytest.fixture(scope="module")
def worker(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Two processes, events on, results over rpc://."""
    with running(
        broker, tmp_path_factory.mktemp("worker"), "--pool=prefork", "--concurrency=2", "-E"
    ) as made:
        yield made


# Tasks and results.


def test_results(worker: Worker) -> None:
    assert worker.call("add", 2, 3) == 5
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        worker.call("divide", 1, 0)


def test_group(worker: Worker) -> None:
    add = worker.app.tasks["add"]
    results = group(add.s(number, 1) for number in range(100)).apply_async()
    assert results.get(timeout=TIMEOUT_S) == list(range(1, 101))


def test_chain(worker: Worker) -> None:
    add = worker.app.tasks["add"]
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=TIMEOUT_S) == 10


def test_link(worker: Worker, tmp_path: Path) -> None:
    """A callback: the worker itself publishes the next task."""
    begun, add = tmp_path / "begun", worker.app.tasks["add"]
    callback = worker.app.tasks["wait_for_file"].si(str(begun), str(tmp_path))
    assert add.apply_async((1, 2), link=callback).get(timeout=TIMEOUT_S) == 3
    wait_until(begun.exists)


def test_autoretry(worker: Worker) -> None:
    """autoretry_for with a countdown: the worker publishes the task again, with an ETA."""
    assert worker.call("flaky", 2) == 2
    with pytest.raises(ConnectionError, match="not yet"):
        worker.call("flaky", 9)


def test_countdown(worker: Worker) -> None:
    sent = time.time()
    late = worker.send("now", countdown=0.5)
    soon = worker.send("now")
    assert soon.get(timeout=TIMEOUT_S) < late.get(timeout=TIMEOUT_S)
    assert late.result >= sent + 0.5


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ cannot hold messages by a header")
def test_tasks_that_the_node_holds_until_their_eta(server: Server, broker: str, tmp_path: Path) -> None:
    """By a policy alone. Before its time no task is with the worker, so the prefetch count stays as it is."""
    definition = {"hold-until-header": "eta"}
    server.admin.set_policy(VHOST, "hold", "^celery$", definition, apply_to="queues")
    try:
        with running(broker, tmp_path / "held", "--pool=solo", "--concurrency=1") as worker:
            sent = time.time()
            late = [worker.send("now", countdown=5) for _ in range(20)]
            assert worker.call("now") >= sent
            inspect = worker.app.control.inspect([worker.hostname], timeout=TIMEOUT_S)
            assert inspect.scheduled() == {worker.hostname: []}
            ran = [result.get(timeout=TIMEOUT_S) for result in late]
            assert min(ran) >= sent + 5
            assert worker.call("flaky", 2) == 2
    finally:
        server.admin.clear_policy(VHOST, "hold")


def test_more_etas_than_the_prefetch(worker: Worker) -> None:
    """Tasks that wait for their time raise the prefetch count (basic.qos while consuming), so others pass."""
    results = [worker.send("now", countdown=1) for _ in range(10)]
    inspect = worker.app.control.inspect([worker.hostname], timeout=TIMEOUT_S, limit=1)
    # The worker sometimes raises the count only when something else happens; the question is enough.
    wait_until(lambda: len(inspect.scheduled()[worker.hostname]) == len(results))
    passing = worker.call("now")
    assert all(result.get(timeout=TIMEOUT_S) > passing for result in results)


def test_expires(worker: Worker) -> None:
    with pytest.raises(TaskRevokedError, match="expired"):
        worker.call("add", 1, 1, expires=-1)


def consumed_queues(worker: Worker) -> list[str]:
    """The queues that the worker says it consumes."""
    inspect = worker.app.control.inspect([worker.hostname], timeout=TIMEOUT_S, limit=1)
    return [queue["name"] for queue in inspect.active_queues()[worker.hostname]]


def test_routing(worker: Worker, name: Names) -> None:
    """A queue of a topic exchange that the worker is told to consume, and to leave again."""
    queue, exchange = name("q"), name("topic")
    control = worker.app.control
    (answer,) = control.add_consumer(
        queue, exchange=exchange, exchange_type="topic", routing_key="a.#", reply=True, limit=1
    )
    assert answer == {worker.hostname: {"ok": f"add consumer {queue}"}}
    wait_until(lambda: queue in consumed_queues(worker))
    result = worker.call("route", exchange=exchange, routing_key="a.b")
    assert tuple(result) == (exchange, "a.b")
    (answer,) = control.cancel_consumer(queue, reply=True, limit=1)
    assert answer == {worker.hostname: {"ok": f"no longer consuming from {queue}"}}
    wait_until(lambda: queue not in consumed_queues(worker))


# Remote control and events.


def test_ping_and_inspect(worker: Worker) -> None:
    """pidbox: a command to all by fanout, one to a named worker, answers to a queue of the asker."""
    assert worker.app.control.ping(timeout=TIMEOUT_S, limit=1) == [{worker.hostname: {"ok": "pong"}}]
    inspect = worker.app.control.inspect([worker.hostname], timeout=TIMEOUT_S, limit=1)
    assert "add" in inspect.registered()[worker.hostname]
    assert consumed_queues(worker) == ["celery"]
    assert inspect.stats()[worker.hostname]["pool"]["max-concurrency"] == 2
    assert inspect.ping(destination=[worker.hostname]) == {worker.hostname: {"ok": "pong"}}


def test_revoke_a_scheduled_task(worker: Worker) -> None:
    result = worker.send("add", 1, 1, countdown=0.5)
    worker.app.control.revoke(result.id, reply=True, limit=1, timeout=TIMEOUT_S)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=TIMEOUT_S)


def test_revoke_a_running_task(worker: Worker, tmp_path: Path) -> None:
    """terminate: the process that runs it is killed, the worker goes on."""
    begun = tmp_path / "begun"
    result = worker.send("wait_for_file", str(begun), str(tmp_path / "never"))
    wait_until(begun.exists)
    result.revoke(terminate=True, signal="SIGKILL")
    with pytest.raises(TaskRevokedError, match="terminated"):
        result.get(timeout=TIMEOUT_S)
    assert worker.call("add", 1, 1) == 2


def test_events(worker: Worker) -> None:
    """Celery's monitors read events of each task from the topic exchange celeryev."""
    seen: list[tuple[str, str]] = []
    with worker.app.connection_for_read() as connection:
        handlers = {"*": lambda event: seen.append((event.get("uuid"), event["type"]))}
        receiver = worker.app.events.Receiver(connection, handlers=handlers)
        with receiver.consumer_context() as (consuming, _, _):
            task = worker.send("add", 1, 2).id

            def served() -> bool:
                with contextlib.suppress(TimeoutError):
                    consuming.drain_events(timeout=0.1)
                return (task, "task-succeeded") in seen

            wait_until(served, "task-succeeded")
    assert [kind for uuid, kind in seen if uuid == task] == [
        "task-received",
        "task-started",
        "task-succeeded",
    ]


# Lost and stopped workers.


def test_a_killed_child_gives_its_task_back(worker: Worker, tmp_path: Path) -> None:
    """acks_late, reject_on_worker_lost: the process that runs the task is killed; it runs again."""
    marks = tmp_path / "marks"
    result = worker.send("hang_once", str(marks))
    wait_until(lambda: is_marked(marks))
    os.kill(int(marks.read_text()), signal.SIGKILL)
    assert result.get(timeout=TIMEOUT_S) == [2, True]


def test_a_killed_worker_gives_its_task_back(
    broker: str, worker: Worker, name: Names, tmp_path: Path
) -> None:
    """acks_late: the whole worker is killed; its task is redelivered to another."""
    queue = name("q")
    marks = tmp_path / "marks"
    with running(broker, tmp_path / "doomed", "--pool=solo", "-Q", queue) as doomed:
        result = worker.send("hang_once", str(marks), queue=queue)
        wait_until(lambda: is_marked(marks))
        doomed.process.kill()
    worker.app.control.add_consumer(queue, destination=[worker.hostname])
    assert result.get(timeout=TIMEOUT_S) == [2, True]


def test_priorities_and_warm_shutdown(broker: str, worker: Worker, name: Names, tmp_path: Path) -> None:
    """Waiting tasks run by priority. SIGTERM: the running task is finished, the rest stays in the queue."""
    queue = name("q")
    app = worker.app
    with app.connection_for_write() as connection:
        app.amqp.queues.select_add(queue)
        app.amqp.queues[queue](connection.default_channel).declare()
    sent = {priority: worker.send("now", queue=queue, priority=priority) for priority in (1, 9, 0, 5)}
    with running(broker, tmp_path / "stopping", "--pool=solo", "-Q", queue) as stopping:
        times = {priority: result.get(timeout=TIMEOUT_S) for priority, result in sent.items()}
        assert sorted(times, key=lambda priority: times[priority]) == [9, 5, 1, 0]

        begun, go_on = tmp_path / "begun", tmp_path / "go-on"
        running_task = worker.send("wait_for_file", str(begun), str(go_on), queue=queue)
        for _ in range(3):
            worker.send("add", 1, 1, queue=queue)
        wait_until(begun.exists)
        stopping.process.terminate()
        stopping.process.wait_for_output("Warm shutdown")
        go_on.touch()
        assert running_task.get(timeout=TIMEOUT_S) == "done"
        assert stopping.process.wait() == 0
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        # One of the three had been sent to the worker: it runs it if it has read it, or else gives it back.
        kept = 3 - sum(
            "Task add[" in line and "received" in line for line in stopping.process.output.splitlines()
        )
        assert kept >= 2
        wait_until(lambda: channel.queue_declare(queue, passive=True).message_count == kept)
        channel.queue_delete(queue)


# Chords, for which rpc:// is not enough; quorum queues.


def test_chords(server: Server, make_vhost: Callable[[], str], tmp_path: Path) -> None:
    """The filesystem backend; the chord's body is started by celery.chord_unlock, which retries by ETA."""
    broker, results = amqp_url(server, make_vhost()), tmp_path / "results"
    results.mkdir()
    with running(broker, tmp_path / "chords", "--pool=solo", backend=f"file://{results}") as worker:
        add, total = worker.app.tasks["add"], worker.app.tasks["total"]
        header = [add.s(number, number) for number in range(10)]
        assert chord(header)(total.s()).get(timeout=TIMEOUT_S, interval=0.05) == 90
        upgraded = chain(group(add.s(1, 1), add.s(2, 2)), total.s(), add.s(100))
        assert upgraded().get(timeout=TIMEOUT_S, interval=0.05) == 106


def test_quorum_queues(server: Server, make_vhost: Callable[[], str], tmp_path: Path) -> None:
    """task_default_queue_type quorum: QoS per consumer, and countdowns by 28 levels of TTL queues."""
    broker = amqp_url(server, make_vhost())
    with running(broker, tmp_path / "quorum", "--pool=solo", queue_type="quorum") as worker:
        assert worker.call("add", 1, 2) == 3
        sent = time.time()
        assert worker.call("now", countdown=1) >= sent + 1
        assert worker.call("flaky", 1) == 1


def test_native_delayed_delivery(server: Server, make_vhost: Callable[[], str], tmp_path: Path) -> None:
    """Countdowns go through a cascade of quorum queues with a time to live and dead letters at least once.

    No worker holds a task before its time.
    """
    broker = amqp_url(server, make_vhost())
    kind = {"queue_type": "quorum", "exchange_type": "topic"}
    with (
        running(broker, tmp_path / "first", "--pool=solo", **kind) as worker,
        running(broker, tmp_path / "second", "--pool=solo", **kind),
        worker.app.connection() as connection,
    ):
        channel = connection.default_channel

        def waiting(level: int) -> int:
            """The messages in the queue for 2 ** level seconds."""
            declared = channel.queue_declare(f"celery_delayed_{level}", passive=True)
            return int(declared.message_count)

        sent = time.time()
        results = {seconds: worker.send("now", countdown=seconds) for seconds in (1, 2, 3, 5)}
        wait_until(lambda: waiting(2) == 1, "the task for 5 s waits in the queue for 4 s")
        for seconds, result in results.items():
            assert result.get(timeout=TIMEOUT_S) >= sent + seconds
        assert [waiting(level) for level in range(4)] == [0, 0, 0, 0]
