"""The auth backends of a node: its own catalogue and those of plug-ins, asked in the configured order.

A login goes to one step after the other until one accepts it. A step has a backend that authenticates and one that
authorises, mostly the same. A backend of a plug-in that raises, or does not answer in time, has refused, and its fault
is logged and counted. Its answers are remembered for some seconds.

    Connection ─► log_in, ask ─► a task for each question ─► AuthBackend ─► answer ─► Connection
Source: RabbitMQ 3.10.8's `rabbit_access_control`.
"""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from node.broker.broker import Broker
from node.catalogue.access import LoginRefused, check_login
from node.catalogue.records import User
from node.client.authority import Admitted, BackendUser, Conversation
from node.config.auth import INTERNAL, AuthStep
from node.extension.auth_backend import (
    AuthBackend,
    AuthStart,
    Challenge,
    Identity,
    Login,
    Proof,
    Question,
)
from node.extension.setting import read_settings
from node.io.answer_cache import AnswerCache
from node.routing.plugins import Plugin

ANSWER_S: Final = 15.0
"""The seconds after which a backend that has not answered has refused: RabbitMQ's time-out of an HTTP backend."""

AT_ONCE_MAX: Final = 128
"""The most questions that are with backends at a time; further ones wait for their turn, within their time limit."""

AnswerT = TypeVar("AnswerT")


class AuthBackends:
    """Asks auth backends. Implements `node.client.authority.Authority`.

    steps: in their order.   settings: all plug-ins' texts of the configuration file.   kept_s: how long answers are
    remembered.   clock: the broker's.   answer_s: the time limit of a question.
    """

    def __init__(
        self,
        broker: Broker,
        steps: Sequence[AuthStep],
        *,
        settings: Mapping[str, str],
        kept_s: float,
        clock: Callable[[], float],
        answer_s: float = ANSWER_S,
    ) -> None:
        self._broker = broker
        self._steps = tuple(steps)
        self._settings = settings
        self._clock = clock
        self._answer_s = answer_s
        self._cache: AnswerCache[Identity | bool] = AnswerCache(kept_s)
        self._made: dict[str, tuple[Plugin, AuthBackend]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._digest_key = os.urandom(32)
        """The key of the digests that stand for passwords in the cache; it is never stored."""

    @property
    def answers_s(self) -> float:
        """The seconds for which an answer may be used again."""
        return self._cache.kept_s

    def missing(self) -> list[str]:
        """Return the configured backends that no enabled plug-in of this node brings."""
        names = {name for step in self._steps for name in step if name != INTERNAL}
        return sorted(name for name in names if self._find(name) is None)

    # --- an `Authority` ---

    def log_in(self, login: Login, on_done: Callable[[User | LoginRefused], None]) -> None:
        """Ask who a client is."""
        self._begin(partial(self.logged_in, login), on_done)

    def offers(self, method: str) -> bool:
        """True if a backend offers a method of authentication in several steps."""
        return self._offering(method) is not None

    def begin(self, start: AuthStart) -> Conversation | None:
        """Begin an authentication with the first backend that offers the method."""
        found = self._offering(start.method)
        if found is None:
            return None
        step, plugin, backend = found
        try:
            return Conversation(start, step.authn, step.authz, backend.begin(start))
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._broker.exchange_types.failed(plugin.name, "begin to authenticate a user", error)
            return None

    def go_on(
        self,
        conversation: Conversation,
        data: bytes,
        on_done: Callable[[Challenge | Admitted | LoginRefused], None],
    ) -> None:
        """Give the backend the client's next bytes."""
        self._begin(partial(self.next_step, conversation, data), on_done)

    def ask(self, user: BackendUser, question: Question, on_done: Callable[[bool], None]) -> None:
        """Ask whether a user may do something."""
        known = self._cache.find((user.authoriser, question), self._clock())
        if known is not None:
            on_done(bool(known))
            return
        self._begin(partial(self.allows, user, question), on_done)

    def _begin(self, answer: Callable[[], Awaitable[AnswerT]], on_done: Callable[[AnswerT], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._answered(answer, on_done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(
        self, answer: Callable[[], Awaitable[AnswerT]], on_done: Callable[[AnswerT], None]
    ) -> None:
        found = await answer()
        self._broker.now = self._clock()
        on_done(found)

    async def stop(self) -> None:
        """Answer nothing more, and close the backends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in list(self._made):
            self._drop(name)
        await asyncio.gather(*self._closing)

    # --- logins ---

    async def logged_in(self, login: Login) -> User | LoginRefused:
        """Return the user if a step accepts the login, else the refusal of the last step.

        Who may connect from where is checked by the caller.
        """
        outcome: User | LoginRefused = LoginRefused(f"user '{login.user}' - no backend was asked")
        for step in self._steps:
            outcome = await self._try(step, login)
            if isinstance(outcome, User):
                break
        return outcome

    async def _try(self, step: AuthStep, login: Login) -> User | LoginRefused:
        if step.authn == INTERNAL:
            known = self._internal(login)
            if isinstance(known, LoginRefused) or step.authz == INTERNAL:
                return known
            identity = Identity(known.name, known.tags)
        else:
            found = await self._identity(step.authn, login, is_authorising=False)
            if found is None:
                return LoginRefused(f"user '{login.user}' - refused by the auth backend '{step.authn}'")
            identity = found
        return await self._authorised(step, identity, login)

    async def _authorised(self, step: AuthStep, identity: Identity, login: Login) -> User | LoginRefused:
        """Return the user whom a step has authenticated, as it authorises it."""
        if step.authz == INTERNAL:
            account = self._broker.catalogue.user(identity.user)
            if account is None:
                return LoginRefused(f"user '{identity.user}' - invalid credentials")
            return replace(account, tags=tuple(dict.fromkeys((*identity.tags, *account.tags))))
        if step.authz != step.authn:
            found = await self._identity(step.authz, replace(login, user=identity.user), is_authorising=True)
            if found is None:
                return LoginRefused(f"user '{identity.user}' - refused by the auth backend '{step.authz}'")
            identity = Identity(found.user, tuple(dict.fromkeys((*identity.tags, *found.tags))))
        return BackendUser(identity.user, "", "", identity.tags, authoriser=step.authz)

    def _offering(self, method: str) -> tuple[AuthStep, Plugin, AuthBackend] | None:
        """Return the first step whose backend offers a method, its plug-in and the backend."""
        for step in self._steps:
            found = None if step.authn == INTERNAL else self._find(step.authn)
            if found is not None and method in found[1].methods:
                return step, *found
        return None

    async def next_step(self, conversation: Conversation, data: bytes) -> Challenge | Admitted | LoginRefused:
        """Return what a backend has to say to a client's bytes: a challenge, or its last word."""
        start, name = conversation.start, conversation.authn

        async def ask(backend: AuthBackend) -> Challenge | Proof | None:
            found = await conversation.exchange.answer(data)
            assert found is None or isinstance(found, Challenge | Proof), (
                "a step has a Challenge, a Proof or None"
            )
            return found

        found = await self._asked(name, "authenticate a user", ask, start, lambda found: False)
        if found is None:
            return LoginRefused(f"refused by the auth backend '{name}' with {start.method}")
        if isinstance(found, Challenge):
            return found
        login = Login(found.identity.user, None, start.method, start.host, is_tls=start.is_tls)
        user = await self._authorised(AuthStep(name, conversation.authz), found.identity, login)
        return user if isinstance(user, LoginRefused) else Admitted(user, found.data)

    def _internal(self, login: Login) -> User | LoginRefused:
        catalogue = self._broker.catalogue
        if login.password is None:
            return catalogue.user(login.user) or LoginRefused(f"user '{login.user}' - invalid credentials")
        return check_login(catalogue, login.user, login.password, is_loopback=True)

    async def _identity(self, name: str, login: Login, *, is_authorising: bool) -> Identity | None:
        """Ask a backend who a client is. Only an accepted login is remembered: another guess is asked for again."""
        key = name, is_authorising, replace(login, password=self._digest(login.password))
        known = self._cache.find(key, self._clock())
        if isinstance(known, Identity):
            return known

        async def ask(backend: AuthBackend) -> Identity | None:
            found = await (backend.authorise(login) if is_authorising else backend.log_in(login))
            assert found is None or isinstance(found, Identity), "a login is answered by an Identity or None"
            return found

        return await self._asked(name, "log in a user", ask, key, lambda found: found is not None)

    def _digest(self, password: bytes | None) -> bytes | None:
        return None if password is None else hmac.digest(self._digest_key, password, "sha256")

    # --- questions ---

    async def allows(self, user: BackendUser, question: Question) -> bool:
        """Return whether the user's backend allows something; False if it cannot be asked."""
        name = user.authoriser
        key = name, question
        known = self._cache.find(key, self._clock())
        if known is not None:
            return bool(known)

        async def ask(backend: AuthBackend) -> bool:
            found = await backend.allows(question)
            assert isinstance(found, bool), "a question is answered by True or False"
            return found

        return bool(await self._asked(name, "answer what a user may do", ask, key, lambda found: True))

    async def _asked(
        self,
        name: str,
        action: str,
        ask: Callable[[AuthBackend], Awaitable[AnswerT]],
        key: Hashable,
        is_to_keep: Callable[[AnswerT], bool],
    ) -> AnswerT | None:
        """Return a backend's answer, and remember it; None if there is none."""
        try:
            async with asyncio.timeout(self._answer_s), self._at_once:
                found = self._find(name)
                if found is None:
                    return None
                plugin, backend = found
                answer = await ask(backend)
        except TimeoutError:
            late = TimeoutError(f"no answer within {self._answer_s:g} s")
            self._failed(name, action, late)
            return None
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._failed(name, action, error)
            return None
        if is_to_keep(answer) and self._is_enabled(plugin):
            assert answer is None or isinstance(answer, Identity | bool)
            if answer is not None:
                self._cache.keep(key, answer, self._clock())
        return answer

    # --- the backends ---

    def _is_enabled(self, plugin: Plugin) -> bool:
        return any(each is plugin for _, each in self._broker.exchange_types.plugins)

    def _find(self, name: str) -> tuple[Plugin, AuthBackend] | None:
        """Return a backend and its plug-in; None if no enabled plug-in of this node has it, or it cannot be made."""
        made = self._made.get(name)
        if made is not None and self._is_enabled(made[0]):
            return made
        if made is not None:
            self._cache.clear()
            self._drop(name)
        for plugin_name, plugin in self._broker.exchange_types.plugins:
            kinds = () if plugin is None else plugin.auth_backends
            kind = next((each for each in kinds if each.name == name), None)
            if plugin is None or kind is None:
                continue
            try:
                backend = kind(read_settings(plugin.settings_prefix, plugin.all_settings, self._settings))
            except Exception as error:  # noqa: BLE001 - whatever foreign code raises
                self._broker.exchange_types.failed(plugin_name, f"make its auth backend '{name}'", error)
                return None
            self._made[name] = plugin, backend
            return plugin, backend
        return None

    def _drop(self, name: str) -> None:
        plugin, backend = self._made.pop(name)
        task = asyncio.get_running_loop().create_task(self._close(plugin.name, backend))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, plugin: str, backend: AuthBackend) -> None:
        try:
            async with asyncio.timeout(self._answer_s):
                await backend.close()
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._broker.exchange_types.failed(plugin, "close an auth backend", error)

    def _failed(self, name: str, action: str, error: Exception) -> None:
        made = self._made.get(name)
        self._broker.exchange_types.failed(name if made is None else made[0].name, action, error)
