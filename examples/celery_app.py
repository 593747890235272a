"""Celery tasks with a retry and a chain; results come back through the broker, too.

    celery --workdir examples -A celery_app worker -l INFO      # in one terminal
    python examples/celery_app.py                                # in another

AMQP_URL names the broker; the default is one on this machine.
"""

import os

from celery import Celery, chain

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672//")

app = Celery("celery_app", broker=URL, backend="rpc://")
app.conf.update(
    task_acks_late=True,  # A task whose worker dies is done by another.
    broker_connection_retry_on_startup=True,
)


@app.task
def add(x, y):
    return x + y


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 5, "countdown": 0.2})
def fetch(self, number):
    """Fail the first time, as the network does; Celery tries again later."""
    if self.request.retries == 0:
        raise ConnectionError("no network")
    return number


def main():
    """Run a chain of tasks, and print its result."""
    print(f"result {chain(fetch.s(20), add.s(22))().get(timeout=30)}")


if __name__ == "__main__":
    main()
