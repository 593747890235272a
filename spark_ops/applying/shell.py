"""The shell is the loop around a runner: journal, requests, operator's orders, clock. All rules are elsewhere."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Final, TypeAlias

from spark_ops.applying.asking import Answer, Ask, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.cluster_orders import RemoteOrder
from spark_ops.applying.history import Record
from spark_ops.applying.journal import Journal, take_order
from spark_ops.applying.observation import Observation
from spark_ops.applying.runner import Runner
from spark_ops.applying.watching import observe

LOCK_PATH: Final = "/mirroring/plan-lock"
STEP_PATH: Final = "/mirroring/plan-step"
THREADS: Final = 8
LOOK_S: Final = 0.25
"""The interval at which the operator's orders are polled, in seconds."""

Result: TypeAlias = Observation | Answer | Silence


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since 1970 that only rises: the wall clock's time now, plus monotonic progress."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


class Shell:
    """Drives a runner to its end.

    control: see `spark_ops.applying.journal`.   told: called with each record, once it is written.
    copied: called with records that are on the disk, before the requests that they announce are sent.
    health: a health document that another program keeps up to date; its score is part of each observation.
    ordered: called in a thread with each observation; returns an order of another machine, or None.
    """

    def __init__(
        self,
        runner: Runner,
        client: Client,
        journal: Journal,
        control: Path,
        *,
        clock: Callable[[], float],
        told: Callable[[Record], None] = lambda record: None,
        health: Path | None = None,
        copied: Callable[[Sequence[Record]], None] = lambda records: None,
        ordered: Callable[[], RemoteOrder | None] = lambda: None,
    ) -> None:
        self._runner = runner
        self._client = client
        self._journal = journal
        self._control = control
        self._clock = clock
        self._told = told
        self._health = health
        self._copied = copied
        self._ordered = ordered
        self._orders = SimpleQueue[RemoteOrder]()
        self._is_interrupted = (
            False  # set by a signal's handler, which may run while a lock is held: so no Event
        )

    def run(self) -> None:
        """Run until the runner is over. Raises: OSError: the journal cannot be written, so nothing more is sent."""
        runner, flying = self._runner, dict[Future[Result], Ask]()
        take_order(self._control)  # drop an old order, which was for an earlier run
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="apply")
        try:
            with self._interruptible():
                while not runner.is_over:
                    self._take_orders()
                    asks = runner.asks(self._clock())
                    self._write()
                    for ask in asks:
                        flying[pool.submit(self._do, ask)] = ask
                    if runner.is_over:
                        break
                    self._await(flying)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _write(self) -> None:
        records = self._runner.take_records()
        self._journal.write(records)
        if records:
            self._copied(records)
        for record in records:
            self._told(record)

    def _await(self, flying: dict[Future[Result], Ask]) -> None:
        now = self._clock()
        rest_s = min(max(self._runner.wake_at(now) - now, 0.0), LOOK_S)
        if not flying:
            time.sleep(max(rest_s, 0.01))
            return
        done, _ = wait(flying, timeout=rest_s, return_when=FIRST_COMPLETED)
        for future in done:
            ask, result = flying.pop(future), future.result()
            if isinstance(result, Observation):
                self._runner.observed(ask, result, self._clock())
            else:
                self._runner.answered(ask, result, self._clock())

    def _do(self, ask: Ask) -> Result:
        match ask.kind:
            case "lock":
                return self._client.request("PUT", LOCK_PATH, ask.body)
            case "unlock":
                return self._client.request("DELETE", LOCK_PATH, ask.body)
            case "step":
                return self._client.request("POST", STEP_PATH, ask.body)
        order = self._ordered()
        if order is not None:
            self._orders.put(order)
        seen = observe(self._client)
        return replace(seen, score=score(self._health)) if isinstance(seen, Observation) else seen

    # --- the operator ---

    def _take_orders(self) -> None:
        order = take_order(self._control)
        if order is not None:
            self._runner.told(order, self._clock())
        while not self._orders.empty():
            # A pause ends this process too, so that any machine can resume the plan.
            self._runner.told("abort" if self._orders.get() == "abort" else "interrupt", self._clock())
        if self._is_interrupted:
            self._is_interrupted = False
            self._runner.told("interrupt", self._clock())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let the first Ctrl-C or SIGTERM pause the plan in order; a second Ctrl-C ends the program."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupted(number: int, frame: FrameType | None) -> None:
            self._is_interrupted = True
            signal.signal(signal.SIGINT, before[signal.SIGINT])

        before = {each: signal.signal(each, interrupted) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def score(path: Path | None) -> float | None:
    """Return the score of a health document; None if it cannot be read or has none."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    found = document.get("score") if isinstance(document, dict) else None
    return float(found) if isinstance(found, int | float) else None
