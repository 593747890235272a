"""The runner carries out a plan: a state machine that returns requests to the cluster and journal records. Pure.

The order in which its shell works is what makes it safe:

    asks(now) ─► write take_records() and sync them ─► send what asks() gave ─► answered(), observed() ─► again

So each request is in the journal before it is sent, and a runner that is made from the journal sends it again:
the cluster answers `skipped` if it is done already. The cluster itself checks each change
against the step's preconditions; the checks here only keep a plan from going on where it should not.
Source: spark §3.4.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from spark_ops.applying.asking import Answer, Ask, AskKind, Silence
from spark_ops.applying.history import History, Record
from spark_ops.applying.lock import Lock
from spark_ops.applying.observation import Observation, Queue, reason_to_abort
from spark_ops.applying.states import ENDED, SUCCEEDED, PlanState, StepState
from spark_ops.applying.steps_sent import Sent, Verdict, verdict
from spark_ops.applying.throttle import Limits, Throttle
from spark_ops.applying.work import ADD, PROMOTE, WAIT, Order, Work, leaves_one

Verb = Literal["pause", "resume", "abort", "interrupt"]

FRESH_TICKS: Final = 3
"""No step begins if the last observation of the cluster is older than this number of ticks."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options for carrying out a plan.

    on_stale: whether a refused step stops the plan, or only leaves out its queue.   wave: only this one; None: all.
    tick_s: between two observations of the cluster.   poll_s: between two questions about a step under way.
    stall_s: a step that makes no progress for so long has failed.
    retry_s: time for which an unreachable cluster is retried.   settle_s: time that an end waits for sent steps.
    """

    limits: Limits = field(default_factory=Limits)
    on_stale: Literal["skip", "stop"] = "stop"
    wave: int | None = None
    ttl_s: float = 30.0
    tick_s: float = 2.0
    poll_s: float = 1.0
    stall_s: float = 600.0
    retry_s: float = 120.0
    settle_s: float = 15.0


class Runner:
    """A plan that is carried out, in one run of the program.

    state: of the plan.   why: the reason of that state, if there is one.   is_over: there is nothing more to do.
    refusal: why it was not begun at all; then nothing was written.   throttle: public for displays.
    """

    def __init__(
        self,
        plan_id: str,
        steps: Sequence[Work],
        owner: str,
        *,
        options: Options | None = None,
        past: History | None = None,
        safe: Collection[Queue] = (),
        now: float,
    ) -> None:
        """Make a runner.

        past: the journal's history.   safe: queues with a synchronised mirror now.   now: seconds since 1970.
        """
        self.options = options or Options()
        past = past or History()
        self.plan_id = plan_id
        self.state = past.state if past.plan else PlanState.APPROVED
        self.why: str | None = None
        self.refusal: str | None = None
        self.is_over = False
        self.throttle = Throttle(self.options.limits)
        self.states = {step.id: past.state_of(step.id) for step in steps}
        self.reasons: dict[str, str] = {}
        self._steps = {step.id: step for step in steps}
        self._order = Order(steps, self.states)
        # A queue whose only copy moves has a mirror for a while, which it may lose.
        self._safe = frozenset(safe) - {(step.vhost, step.queue) for step in steps if leaves_one(step)}
        self._lock = Lock(plan_id, past.owner or owner, self.options.ttl_s, now)
        self._records: list[Record] = []
        self._number = 0
        self._asked: dict[int, Ask] = {}
        self._sent: dict[str, Sent] = {}
        self._first: Observation | None = None
        self._seen_at = self._observe_at = now
        self._unreached_since: float | None = None
        self._is_begun = False
        self._closing: PlanState | None = None
        self._settled_at = 0.0
        self._is_unlocking = False
        self._epochs: dict[str, int] = {}
        for id_, observed in past.observed.items():
            if id_ in self._steps and self.states[id_] in SUCCEEDED:
                self._note_epoch(self._steps[id_], observed.get("epoch"))
        self._scope = [step for step in steps if self.options.wave in (None, step.wave)]
        for step in self._scope:
            self._order.add(step)
        earlier = [step for step in steps if step.wave < (self.options.wave or 0)]
        open_waves = [step.wave for step in earlier if self.states[step.id] not in ENDED]
        if open_waves:
            self._refuse(f"wave {min(open_waves)} comes before wave {self.options.wave}")
        elif not self._scope and steps:
            self._refuse(f"there is no wave {self.options.wave}")

    @property
    def owner(self) -> str:
        """The name by which this run has the lock."""
        return self._lock.owner

    # --- requests and records ---

    def asks(self, now: float) -> list[Ask]:
        """Return requests to send now, each once. First the records of `take_records` must be on disk."""
        found: list[Ask] = []
        if self.is_over:
            return found
        if self._closing is None and self._is_begun:
            self._end_if_all_ended(now)
        self._settle(now)
        if self._is_unlocking:
            return self._unlock(found)
        if self._lock.is_due(now) and not self._is_asked("lock"):
            found.append(self._ask("lock", self._lock.body))
        if not self._lock.is_held(now):
            return found
        if now >= self._observe_at and not self._is_asked("observe"):
            self._observe_at = now + self.options.tick_s
            found.append(self._ask("observe", {}))
        if self._is_begun:
            found += self._polls(now)
            found += self._beginnings(now)
        return found

    def take_records(self) -> list[Record]:
        """Return the records to write into the journal, each once."""
        found, self._records = self._records, []
        return found

    def wake_at(self, now: float) -> float:
        """Return when to call `asks` again if nothing happens before."""
        times = [now + self.options.tick_s]
        if not self._is_asked("lock"):
            times.append(self._lock.due_at)
        if self._closing is not None:
            times.append(self._settled_at)
        if not self._lock.is_held(now):
            return max(now, min(times))
        if not self._is_asked("observe"):
            times.append(self._observe_at)
        times += [sent.next_at for sent in self._sent.values() if not self._is_resting(sent)]
        if self.throttle.due_s() > now and self._order.are_copies_waiting():
            times.append(self.throttle.due_s())
        return max(now, min(times))

    def told(self, verb: Verb, now: float) -> None:
        """Carry out an operator's order. An order that makes no sense now does nothing."""
        if self._closing is not None or self.is_over:
            return
        if not self._is_begun and verb in ("abort", "interrupt"):
            self._refuse("nothing was begun: the operator stopped it")
        elif verb == "pause" and self.state is PlanState.RUNNING:
            self._become(PlanState.PAUSED, "paused by the operator", now)
        elif verb == "resume" and self.state is PlanState.PAUSED and self._is_begun:
            self._become(PlanState.RUNNING, None, now)
        elif verb == "abort":
            self._close(PlanState.ABORTED, "aborted by the operator", now)
        elif verb == "interrupt":
            self._close(PlanState.PAUSED, "interrupted", now)

    # --- answers ---

    def answered(self, ask: Ask, answer: Answer | Silence, now: float) -> None:
        """Handle a node's answer, or the silence of all nodes."""
        self._asked.pop(ask.number, None)
        if ask.kind == "unlock":
            self.is_over = True  # a lost unlock request does no harm: the lock expires
            return
        is_unsure = isinstance(answer, Silence) or answer.is_unsure
        self._reached(None if not is_unsure else answer, now)
        match ask.kind:
            case "lock":
                self._lock_answered(None if isinstance(answer, Silence) else answer, now)
            case "observe":
                pass  # the observation failed; the next tick tries again, and nothing begins meanwhile
            case "step":
                assert ask.step is not None
                if ask.step in self._sent:
                    self._step_answered(self._sent[ask.step], answer, now)

    def observed(self, ask: Ask, seen: Observation, now: float) -> None:
        """Handle an observation of the cluster."""
        self._asked.pop(ask.number, None)
        self._reached(None, now)
        self._seen_at = now
        self.throttle.saw(seen)
        if self._first is None:
            self._first = seen
            self._begin(seen, now)
        elif reason := reason_to_abort(self._first, seen, self._safe):
            self._close(PlanState.ABORTED, reason, now)

    def _begin(self, seen: Observation, now: float) -> None:
        if seen.alarms:
            self._refuse(f"an alarm is set: {', '.join(sorted(seen.alarms))}")
            return
        if self._closing is not None or self._is_unlocking:
            return
        self._is_begun = True
        self._become(PlanState.RUNNING, None, now)
        for step in self._scope:
            if self.states[step.id] in (StepState.SENT, StepState.LEFT):
                if self.states[step.id] is StepState.LEFT:
                    self._note(step, StepState.SENT, now)
                self._sent[step.id] = Sent(step, now, is_again=True)
                self.throttle.began(step, now)
            elif step.action == ADD and self.states[step.id] in SUCCEEDED and self._is_copying(step):
                self.throttle.began(step, now)

    def _is_copying(self, added: Work) -> bool:
        return any(
            step.action == WAIT and step.copy == added.copy and self.states[step.id] not in ENDED
            for step in self._scope
        )

    # --- the lock ---

    def _lock_answered(self, answer: Answer | None, now: float) -> None:
        if answer is None or answer.is_unsure:
            self._lock.missed(now)
        elif answer.status == 200:
            self._lock.gained(now)
            view = answer.field("view_id")
            if self._first is not None and isinstance(view, int) and self._first.view_id not in (None, view):
                self._close(PlanState.ABORTED, "the membership has changed", now)
        else:
            self._lock.lost()
            self._give_up(answer.reason, now)

    def _reached(self, trouble: Answer | Silence | None, now: float) -> None:
        """Note whether the cluster answers; give up after `retry_s` without a definite answer."""
        if trouble is None:
            self._unreached_since = None
            return
        if self._unreached_since is None:
            self._unreached_since = now
        if now - self._unreached_since >= self.options.retry_s:
            self._give_up(trouble.why if isinstance(trouble, Silence) else trouble.reason, now)

    def _give_up(self, why: str, now: float) -> None:
        if self._is_begun:
            self._close(PlanState.PAUSED, why, now)
        else:
            self._refuse(why)

    # --- steps ---

    def _polls(self, now: float) -> list[Ask]:
        """Return questions about the steps under way; while the plan ends, there are none about copies."""
        found = []
        for sent in list(self._sent.values()):
            if sent.next_at > now or self._is_resting(sent):
                continue
            if now - sent.progressed_at >= self.options.stall_s:
                self._end(sent.step, StepState.FAILED, now, f"no progress for {self.options.stall_s:.0f} s")
                self._after_failure(sent.step, PlanState.ABORTED, now)
                continue
            found.append(self._ask_step(sent))
        return found

    def _is_resting(self, sent: Sent) -> bool:
        """True if a step needs no question: one is under way, or it is a copy and the plan is ending."""
        return sent.is_asked or (self._closing is not None and sent.step.action == WAIT)

    def _beginnings(self, now: float) -> list[Ask]:
        is_fresh = now - self._seen_at <= FRESH_TICKS * self.options.tick_s
        if self.state is not PlanState.RUNNING or self._closing is not None or not is_fresh:
            return []
        found = []
        for step, can_begin in self._order.choose(
            lambda step: self._closing is None and self.throttle.admits(step, now)
        ):
            if not can_begin:
                self._end(step, StepState.DROPPED, now, "a step that it needs did not succeed")
            elif step.pre["epoch"] is None and step.uid not in self._epochs:
                self._end(step, StepState.FAILED, now, "the cluster did not tell the epoch that it made")
                self._after_failure(step, PlanState.ABORTED, now)
            else:
                self._note(step, StepState.SENT, now)
                sent = self._sent[step.id] = Sent(step, now)
                self.throttle.began(step, now)
                found.append(self._ask_step(sent))
        return found

    def _ask_step(self, sent: Sent) -> Ask:
        sent.is_asked = True
        sent.attempts += 1
        return self._ask("step", sent.body(self.plan_id, self._epochs), sent.step.id)

    def _step_answered(self, sent: Sent, answer: Answer | Silence, now: float) -> None:
        sent.is_asked = False
        step = sent.step
        found = verdict(sent, answer)
        match found:
            case Verdict.AGAIN:
                sent.wait_longer(now)
            case Verdict.LOCKED:
                self._lock.lost()
                sent.next_at = now + self.options.poll_s
            case Verdict.GOES_ON:
                assert isinstance(answer, Answer)
                if sent.goes_on(answer, now, self.options.poll_s):
                    self._records.append({"at": now, "step": step.id, "to": StepState.SENT, "goes_on": True})
            case StepState():
                assert isinstance(answer, Answer)
                why = None if found in SUCCEEDED else answer.reason
                self._end(step, found, now, why, answer.field("observed"))
                if found not in SUCCEEDED:
                    ending = PlanState.STALE if found is StepState.STALE else PlanState.ABORTED
                    self._after_failure(step, ending, now)
            case Verdict.FORBIDDEN:
                assert isinstance(answer, Answer)
                sent.next_at = now + self.options.settle_s
                self._close(PlanState.PAUSED, answer.reason, now)

    def _after_failure(self, step: Work, ending: PlanState, now: float) -> None:
        if self.options.on_stale == "stop":
            self._close(ending, f"step {step.id}: {self.reasons[step.id]}", now)

    def _end(
        self, step: Work, state: StepState, now: float, why: str | None = None, observed: Any = None
    ) -> None:
        self._note(step, state, now, why, observed)
        self._sent.pop(step.id, None)
        self._order.ended(step)
        is_good = state in SUCCEEDED
        if step.action == PROMOTE:
            self.throttle.ended(step)
        elif step.action == WAIT or (step.action == ADD and not (is_good and self._is_copying(step))):
            self.throttle.copied(step)
        if is_good and isinstance(observed, dict):
            self._note_epoch(step, observed.get("epoch"))

    def _note_epoch(self, step: Work, epoch: Any) -> None:
        """Note the epoch that a promotion made: later steps of the queue require that one."""
        if step.action == PROMOTE and isinstance(epoch, int):
            self._epochs[step.uid] = epoch

    # --- ends ---

    def _end_if_all_ended(self, now: float) -> None:
        if not self._order.is_all_ended:
            return
        if any(state not in ENDED for state in self.states.values()):
            self._close(PlanState.PAUSED, f"wave {self.options.wave} has ended", now)
        else:
            self._close(PlanState.DONE, None, now)

    def _close(self, state: PlanState, why: str | None, now: float) -> None:
        """Begin nothing any more, and end when the sent steps are answered. An abort outranks other ends."""
        if self._closing is None:
            self._settled_at = now + self.options.settle_s
        elif state is not PlanState.ABORTED or self._closing is PlanState.ABORTED:
            return
        self._closing, self.why = state, why

    def _refuse(self, why: str) -> None:
        self.refusal = self.refusal or why
        self._is_unlocking = True

    def _settle(self, now: float) -> None:
        if self._closing is None or self._is_unlocking:
            return
        going = [sent for sent in self._sent.values() if sent.is_asked or sent.step.action != WAIT]
        if going and now < self._settled_at and self._closing is not PlanState.DONE:
            return
        for sent in self._sent.values():
            self._note(sent.step, StepState.LEFT, now)
        self._sent.clear()
        self._become(self._closing, self.why, now)
        self._is_unlocking = True

    def _unlock(self, found: list[Ask]) -> list[Ask]:
        if not self._lock.was_held:
            self.is_over = True
        elif not self._is_asked("unlock") and not self._is_asked("lock"):
            found.append(self._ask("unlock", self._lock.body))
        return found

    # --- parts ---

    def _ask(self, kind: AskKind, body: Any, step: str | None = None) -> Ask:
        self._number += 1
        ask = self._asked[self._number] = Ask(self._number, kind, body, step)
        return ask

    def _is_asked(self, kind: AskKind) -> bool:
        return any(ask.kind == kind for ask in self._asked.values())

    def _become(self, state: PlanState, why: str | None, now: float) -> None:
        self.state, self.why = state, why
        record = {"at": now, "plan": self.plan_id, "to": state, "owner": self._lock.owner, "why": why}
        self._records.append(record)

    def _note(
        self, step: Work, state: StepState, now: float, why: str | None = None, observed: Any = None
    ) -> None:
        self.states[step.id] = state
        record: dict[str, Any] = {"at": now, "step": step.id, "to": state}
        if why is not None:
            self.reasons[step.id] = record["why"] = why
        if observed is not None:
            record["observed"] = observed
        self._records.append(record)
