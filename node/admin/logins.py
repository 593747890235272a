"""Logins of operators, over HTTP and the command line, by the same auth backends as those of AMQP."""

import asyncio
from collections.abc import Container, Iterable
from functools import partial
from typing import Any, Final

from node.broker.broker import Broker
from node.catalogue.access import LoginRefused, check_login
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.extension.auth_backend import Login, Question, VhostAccess
from node.queue.live_queue import Wait

ANSWER_S: Final = 30.0
"""The longest wait for an answer: longer than the time limits of the backends of one login."""

_VHOSTS_AT_ONCE: Final = 64


async def log_in(
    broker: Broker, login: Login, *, is_loopback: bool, loopback_users: Container[str] = ()
) -> User | LoginRefused:
    """Return the user, or why the login is refused. is_loopback: whether it comes from this machine.

    Raises: TimeoutError.
    """
    if broker.authority is None:
        password = login.password or b""
        return check_login(
            broker.catalogue, login.user, password, is_loopback=is_loopback, loopback_users=loopback_users
        )
    found: User | LoginRefused = await _answer(partial(broker.authority.log_in, login))
    if isinstance(found, User) and found.name in loopback_users and not is_loopback:
        return LoginRefused(f"user '{found.name}' can only connect via localhost")
    return found


async def may(broker: Broker, user: BackendUser, question: Question) -> bool:
    """Return whether a backend allows its user to do something. Raises: TimeoutError."""
    assert broker.authority is not None, "only an authority makes such users"
    return bool(await _answer(partial(broker.authority.ask, user, question)))


async def visible_vhosts(
    broker: Broker, user: BackendUser, vhosts: Iterable[str], host: str
) -> frozenset[str]:
    """Return the vhosts that a backend lets its user open.   host: the user's IP address. Raises: TimeoutError."""
    found: set[str] = set()
    left = list(vhosts)
    while left:
        names, left = left[:_VHOSTS_AT_ONCE], left[_VHOSTS_AT_ONCE:]
        questions = (VhostAccess(user.name, user.tags, name, host) for name in names)
        answers = await asyncio.gather(*(may(broker, user, question) for question in questions))
        found.update(name for name, is_allowed in zip(names, answers, strict=True) if is_allowed)
    return frozenset(found)


async def _answer(ask: Wait) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_done(answer: Any) -> None:
        if not future.done():
            future.set_result(answer)

    ask(on_done)
    async with asyncio.timeout(ANSWER_S):
        return await future
