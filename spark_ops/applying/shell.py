"""The loop around a runner: the journal, the requests, the operator's orders, the clock. All rules are elsewhere."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

from spark_ops.applying.asking import Answer, Ask, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.history import Record
from spark_ops.applying.journal import Journal, take_order
from spark_ops.applying.observation import Observation
from spark_ops.applying.runner import Runner
from spark_ops.applying.watching import observe

LOCK_PATH: Final = "/mirroring/plan-lock"
STEP_PATH: Final = "/mirroring/plan-step"
THREADS: Final = 8
LOOK_S: Final = 0.25
"""So often it is looked whether the operator wants something."""

Result: TypeAlias = Observation | Answer | Silence


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 that only rise: the wall's time now, and from now on the monotonic clock's."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


class Shell:
    """Lets a runner run.

    control: see `spark_ops.applying.journal`.   told: called with each record, once it is written.
    health: a health document that somebody keeps up to date; its score is looked at.
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
    ) -> None:
        self._runner = runner
        self._client = client
        self._journal = journal
        self._control = control
        self._clock = clock
        self._told = told
        self._health = health
        self._is_interrupted = (
            False  # set by a signal's handler, which may come while a lock is held: so no Event
        )

    def run(self) -> None:
        """Return when the runner is over. Raises: OSError: the journal cannot be written, so nothing more is sent."""
        runner, flying = self._runner, dict[Future[Result], Ask]()
        take_order(self._control)  # an old one was for an earlier life
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
        seen = observe(self._client)
        return replace(seen, score=score(self._health)) if isinstance(seen, Observation) else seen

    # --- the operator ---

    def _take_orders(self) -> None:
        order = take_order(self._control)
        if order is not None:
            self._runner.told(order, self._clock())
        if self._is_interrupted:
            self._is_interrupted = False
            self._runner.told("interrupt", self._clock())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first Ctrl-C ends the plan in order, the second one ends the program."""
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
    """Of a health document; None: there is none just now."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    found = document.get("score") if isinstance(document, dict) else None
    return float(found) if isinstance(found, int | float) else None
