"""The lock and the steps of plans that move copies of queues.

The catalogue judges what a step may do (`node.catalogue.mirrors.plan_steps`). Source: spark §3.4.
"""

import asyncio
from typing import TypeVar

from node.admin.admin import WAIT_S, Admin, AdminError
from node.admin.submission import submit
from node.catalogue.commands import (
    Command,
    Refused,
    ReleasePlanLock,
    StepOutcome,
    TakePlanLock,
    TakePlanStep,
)
from node.catalogue.records import PlanLock
from node.log import mirroring as log_mirroring

ResultT = TypeVar("ResultT")


async def take_lock(admin: Admin, plan: str, owner: str, now_ms: int, ttl_ms: int) -> PlanLock:
    """Take or renew the lock for a plan, and return the lock that holds now, maybe another plan's. Raises:
    AdminError.
    """
    before = admin.catalogue.plan_lock
    lock = await _submitted(admin, TakePlanLock(plan, owner, now_ms, ttl_ms))
    is_ours = (lock.plan, lock.owner) == (plan, owner)
    if is_ours and (before is None or before.since_ms != lock.since_ms):
        admin.logger.info(log_mirroring.plan_begun(plan, owner, admin.by))
    return lock


async def release_lock(admin: Admin, plan: str, owner: str) -> PlanLock | None:
    """End a plan, and return the lock that holds now: another plan's, which stays. Raises: AdminError."""
    before = admin.catalogue.plan_lock
    lock = await _submitted(admin, ReleasePlanLock(plan, owner))
    if lock is None and before is not None:
        admin.logger.info(log_mirroring.plan_ended(plan, owner, admin.by))
    return lock


async def take_step(admin: Admin, command: TakePlanStep) -> StepOutcome:
    """Make a step of a plan. Raises: AdminError when the outcome is not known: the step may be asked for again."""
    outcome = await _submitted(admin, command)
    if outcome.state == "done":
        node = command.source if command.action == "drop_mirror" else command.target
        text = log_mirroring.plan_step(
            command.plan, command.step, command.action, command.name, command.vhost, node
        )
        admin.logger.info(text)
    return outcome


async def _submitted(admin: Admin, command: Command[ResultT]) -> ResultT:
    """Return the outcome of a command that is never refused for its contents."""
    try:
        async with asyncio.timeout(WAIT_S):
            result = await submit(admin.broker.log, command)
    except TimeoutError:
        raise AdminError("unavailable", f"no answer within {WAIT_S:g} s") from None
    if isinstance(result, Refused):
        raise AdminError("unavailable", result.text)
    return result
