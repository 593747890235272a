"""The Celery application of test_client_celery.py: the same tasks for its workers and for the tests.

A worker is started with `-A tests.conformance.celery_app` and these variables; the tests call `make_app`.
"""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

BROKER_VARIABLE = "FLUFFLE_TEST_CELERY_BROKER"
BACKEND_VARIABLE = "FLUFFLE_TEST_CELERY_BACKEND"
QUEUE_TYPE_VARIABLE = "FLUFFLE_TEST_CELERY_QUEUE_TYPE"
EXCHANGE_TYPE_VARIABLE = "FLUFFLE_TEST_CELERY_EXCHANGE_TYPE"

POLL_S = 0.01
HANG_S = 60.0
"""Longer than any test waits; the worker is killed before."""


def make_app(broker: str, backend: str, queue_type: str = "classic", exchange_type: str = "direct") -> Any:
    """The application for a broker's URL. backend: `rpc://`, or `file://…`, which can do chords.

    exchange_type: of the tasks' exchange; Celery's native delayed delivery needs `topic`.
    """
    app = Celery("conformance", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        task_default_queue_type=queue_type,
        task_default_exchange_type=exchange_type,
        task_queue_max_priority=None if queue_type == "quorum" else 10,
        worker_prefetch_multiplier=1,
        result_chord_retry_interval=0.1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
        worker_detect_quorum_queues=True,
        worker_enable_remote_control=True,
        result_expires=60,
    )
    for function, options in TASKS.items():
        app.task(name=function.__name__, **options)(function)
    return app


def add(x: int, y: int) -> int:
    return x + y


def total(numbers: list[int]) -> int:
    return sum(numbers)


def divide(x: int, y: int) -> float:
    return x / y


def now() -> float:
    """Return when the task ran, in seconds of the machine's clock."""
    return time.time()


def flaky(self: Any, failures: int) -> int:
    """Fail so many times. Returns: how many retries it took."""
    retries: int = self.request.retries
    if retries < failures:
        raise ConnectionError("not yet")
    return retries


def route(self: Any) -> tuple[str, str]:
    """By which exchange and routing key the task came."""
    delivery = self.request.delivery_info
    return delivery["exchange"], delivery["routing_key"]


def hang_once(self: Any, marks: str) -> tuple[int, bool]:
    """Leave the process id as a mark; the first time, hang. Returns: how many marks; whether redelivered."""
    path = Path(marks)
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    count = len(path.read_text().splitlines())
    if count == 1:
        time.sleep(HANG_S)
    return count, self.request.delivery_info["redelivered"]


def wait_for_file(begun: str, awaited: str) -> str:
    """Make one file; return when another is there."""
    Path(begun).touch()
    while not Path(awaited).exists():
        time.sleep(POLL_S)
    return "done"


TASKS: dict[Any, dict[str, Any]] = {
    add: {},
    total: {},
    divide: {},
    now: {},
    flaky: {
        "bind": True,
        "autoretry_for": (ConnectionError,),
        "retry_kwargs": {"max_retries": 3, "countdown": 0.1},
    },
    route: {"bind": True},
    hang_once: {"bind": True, "acks_late": True, "reject_on_worker_lost": True},
    wait_for_file: {},
}

app = make_app(
    os.environ.get(BROKER_VARIABLE, "memory://"),
    os.environ.get(BACKEND_VARIABLE, "rpc://"),
    os.environ.get(QUEUE_TYPE_VARIABLE, "classic"),
    os.environ.get(EXCHANGE_TYPE_VARIABLE, "direct"),
)
