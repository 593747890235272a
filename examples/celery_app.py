"""Celery tasks with a retry and a chain; results come back through the broker, too.

    celery --workdir examples -A celery_app worker -l INFO      # in one terminal
    python examples/celery_app.py                                # in another
    seq 1000 | python examples/celery_app.py -                   # tasks without results, one a line

AMQP_URL names the broker, or several of a cluster with semicolons between; the default is one on this machine.
"""

import os
import sys

from celery import Celery, chain
from celery.utils.log import get_task_logger

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672//")

app = Celery("celery_app", broker=URL, backend="rpc://")
app.conf.update(
    task_acks_late=True,  # A task whose worker dies is done by another.
    worker_cancel_long_running_tasks_on_connection_loss=False,  # It is done; then it comes again, and is done again.
    # After the first URL any of them, and never give up.
    broker_failover_strategy="shuffle",
    broker_connection_timeout=5,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_channel_error_retry=True,  # A queue may be away for a moment, and is 404 then.
    broker_heartbeat=10,  # A broker that is silent for longer is left.
    # A task is sent when the broker has taken responsibility for it. It is tried again for some minutes.
    broker_transport_options={"confirm_publish": True},
    task_publish_retry_policy={
        "max_retries": 300,
        "interval_start": 0,
        "interval_step": 0.5,
        "interval_max": 1,
    },
)
log = get_task_logger(__name__)


@app.task
def add(x, y):
    return x + y


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 5, "countdown": 0.2})
def fetch(self, number):
    """Fail the first time, as the network does; Celery tries again later."""
    if self.request.retries == 0:
        raise ConnectionError("no network")
    return number


@app.task(ignore_result=True)
def note(text):
    """A task that may come twice, when a confirm or an acknowledgement is lost with the connection."""
    log.info("noted %s", text)


def main():
    """Run a chain of tasks, and print its result."""
    print(f"result {chain(fetch.s(20), add.s(22))().get(timeout=30)}")


def send(texts):
    """Have each text noted.   mandatory: a task without a queue is an error, not lost."""
    for text in texts:
        note.apply_async((text,), mandatory=True, confirm_timeout=10)
        print(f"sent {text}")


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        send(line.rstrip("\n") for line in sys.stdin)
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        main()
