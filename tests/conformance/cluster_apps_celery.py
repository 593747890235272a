"""The Celery application of test_cluster_apps.py, for its workers and for the test.

    celery -A tests.conformance.cluster_apps_celery worker -Q QUEUE

A worker leaves a file for each task that it has done; the task is acknowledged after that.
"""

import os
from pathlib import Path
from typing import Any, Final

from celery import Celery
from kombu import Queue

BROKER_VARIABLE: Final = "FLUFFLE_TEST_APPS_BROKER"
STRATEGY_VARIABLE: Final = "FLUFFLE_TEST_APPS_STRATEGY"
DONE_VARIABLE: Final = "FLUFFLE_TEST_APPS_DONE"

QUEUES: Final = ("orders", "mails")
"""The first lives on the cluster's first node, and so on."""


def make_app(brokers: str, strategy: str) -> Any:
    """The application.   brokers: URLs, separated by semicolons.   strategy: of kombu, which of them is next."""
    app = Celery("cluster_apps", broker=brokers, set_as_current=False)
    app.conf.update(
        broker_failover_strategy=strategy,
        broker_connection_timeout=5,
        broker_connection_max_retries=None,
        broker_connection_retry_on_startup=True,
        broker_channel_error_retry=True,  # A queue whose home is away is 404, and comes back.
        broker_transport_options={"confirm_publish": True},
        task_queues=[Queue(name, durable=True) for name in QUEUES],
        task_default_queue=QUEUES[0],
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=4,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    app.task(name="do")(do)
    return app


def do(number: int) -> None:
    """Leave a file as a mark that it was done."""
    (Path(os.environ[DONE_VARIABLE]) / str(number)).touch()


app = make_app(os.environ.get(BROKER_VARIABLE, "memory://"), os.environ.get(STRATEGY_VARIABLE, "round-robin"))
