"""The programs of examples/, run as their first lines say."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.client_steps import Process, amqp_url, oslo_url
from tests.kit.servers import Server

pytestmark = pytest.mark.slow  # Two or three processes for each.

Run = Callable[..., Process]


@pytest.fixture
def run(server: Server, make_vhost: Callable[[], str], tmp_path: Path) -> Iterator[Run]:
    """Start Python programs that find the broker in a vhost of the test's own; they end with the test."""
    vhost = make_vhost()
    environment = {"AMQP_URL": amqp_url(server, vhost), "TRANSPORT_URL": oslo_url(server, vhost=vhost)}
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(tmp_path / f"{len(started)}.log", *arguments, environment=environment))
        return started[-1]

    yield start
    for process in started:
        process.end()


def test_pika_work_queue(run: Run) -> None:
    program = "examples/pika_work_queue.py"
    assert run(program, "send", "early").wait() == 0
    worker = run(program, "work")
    worker.wait_for_output("done early\n")
    assert run(program, "send", "one", "two").wait() == 0
    worker.wait_for_output("done one\ndone two\n")


def test_aio_pika_rpc(run: Run) -> None:
    program = "examples/aio_pika_rpc.py"
    run(program, "serve").wait_for_output("serving\n")
    caller = run(program, "call", "6", "7")
    assert caller.wait() == 0
    assert caller.output == "6 * 7 = 42\n"


def test_celery_app(run: Run) -> None:
    worker = run("-m", "celery", "--workdir", "examples", "-A", "celery_app", "worker", "-l", "INFO")
    worker.wait_for_output(" ready.")
    client = run("examples/celery_app.py")
    assert client.wait() == 0
    assert client.output == "result 42\n"


def test_oslo_rpc(run: Run) -> None:
    program = "examples/oslo_rpc.py"
    server = run(program, "serve")
    server.wait_for_output("serving\n")
    client = run(program, "call", "world")
    assert client.wait() == 0
    assert "hello world\n" in client.output
    server.wait_for_output("noted world was greeted\n")
