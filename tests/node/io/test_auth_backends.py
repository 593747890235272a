"""Auth backends of plug-ins in their order: who is let in, what is remembered, and what their faults cost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest

from node.broker.broker import Broker
from node.catalogue.access import LoginRefused
from node.catalogue.commands import DisablePlugin, EnablePlugin
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.client.settings import BrokerSettings
from node.config.auth import AuthStep
from node.extension.auth_backend import AuthBackend, Identity, Login, Question, VhostAccess
from node.extension.setting import Setting
from node.io.auth_backends import AuthBackends
from node.routing.plugins import Plugin
from tests.kit.world import GUEST

ADA = Login("ada", b"secret", "PLAIN")
LOVE = Login("guest", b"guest", "PLAIN")
OPEN = VhostAccess("ada", ("monitoring",), "/")


class Told(AuthBackend):
    """A backend that knows ada, and does as a test tells it."""

    name: ClassVar[str] = "told"
    asked: ClassVar[list[Login | Question]] = []
    closed: ClassVar[int] = 0
    before: ClassVar[Callable[[], Awaitable[None]] | None] = None

    async def log_in(self, login: Login) -> Identity | None:
        await self._hear(login)
        return Identity(login.user, ("monitoring",)) if login.password == b"secret" else None

    async def allows(self, question: Question) -> bool:
        await self._hear(question)
        return question.vhost == self.settings["vhost"]

    async def close(self) -> None:
        Told.closed += 1

    async def _hear(self, what: Login | Question) -> None:
        self.asked.append(what)
        if Told.before is not None:
            await Told.before()


class Tags(AuthBackend):
    """A backend that authorises whom another one has authenticated."""

    name: ClassVar[str] = "tags"

    async def log_in(self, login: Login) -> Identity | None:
        return None

    async def authorise(self, login: Login) -> Identity | None:
        return Identity(login.user, ("policymaker",)) if login.user != "guest" else None

    async def allows(self, question: Question) -> bool:
        return True


PLUGIN = Plugin("mine", "1", "", auth_backends=(Told, Tags), settings=(Setting("vhost", "/"),))


class Bench:
    """A broker that has the plug-in, and its auth backends.   now: their clock."""

    def __init__(self, *steps: tuple[str, str], answer_s: float = 10.0, **settings: str) -> None:
        self.now = 0.0
        self.broker = Broker(
            BrokerSettings(), entropy=bytes, load_plugin=lambda name: PLUGIN if name == "mine" else None
        )
        for command in (*GUEST, EnablePlugin("mine", ())):
            self.broker.log.submit(command)
        self.backends = AuthBackends(
            self.broker,
            [AuthStep(*step) for step in steps],
            settings={f"plugin.mine.{key}": text for key, text in settings.items()},
            kept_s=15.0,
            clock=lambda: self.now,
            answer_s=answer_s,
        )

    def log_in(self, login: Login) -> User | LoginRefused:
        return asyncio.run(self.backends.logged_in(login))

    @property
    def failures(self) -> int:
        return self.broker.exchange_types.failures["mine"]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Told.asked.clear()
    Told.closed = 0
    Told.before = None


def user_of(outcome: User | LoginRefused) -> User:
    assert isinstance(outcome, User), outcome
    return outcome


def test_steps_are_tried_in_their_order_until_one_accepts() -> None:
    bench = Bench(("internal", "internal"), ("told", "told"))
    assert type(bench.log_in(LOVE)) is User
    assert Told.asked == [], "the catalogue came first"
    user = user_of(bench.log_in(ADA))
    assert user == BackendUser("ada", "", "", ("monitoring",), authoriser="told")
    assert Told.asked == [ADA]
    assert bench.log_in(Login("eve", b"guess")) == LoginRefused(
        "user 'eve' - refused by the auth backend 'told'"
    )


def test_a_backend_may_authenticate_users_of_the_catalogue() -> None:
    bench = Bench(("told", "internal"))
    assert bench.log_in(ADA) == LoginRefused("user 'ada' - invalid credentials"), "it has no ada"
    guest = user_of(bench.log_in(Login("guest", b"secret")))
    assert type(guest) is User
    assert guest.tags == ("monitoring", "administrator")


def test_a_backend_may_authorise_users_of_another_one() -> None:
    bench = Bench(("internal", "tags"), ("told", "tags"))
    assert isinstance(bench.log_in(LOVE), LoginRefused)
    user = user_of(bench.log_in(ADA))
    assert user == BackendUser("ada", "", "", ("monitoring", "policymaker"), authoriser="tags")


def test_a_right_login_is_remembered_and_a_wrong_one_is_not() -> None:
    bench = Bench(("told", "told"))
    for _ in range(2):
        assert isinstance(bench.log_in(Login("ada", b"wrong")), LoginRefused)
        assert isinstance(bench.log_in(ADA), User)
    assert [login.password for login in Told.asked if isinstance(login, Login)] == [
        b"wrong",
        b"secret",
        b"wrong",
    ]
    bench.now = 15.0
    bench.log_in(ADA)
    assert Told.asked[-1] == ADA
    assert len(Told.asked) == 4


def test_answers_about_access_are_remembered_both_ways() -> None:
    bench = Bench(("told", "told"), vhost="/mine")
    user = BackendUser("ada", "", "", ("monitoring",), authoriser="told")
    for _ in range(2):
        assert not asyncio.run(bench.backends.allows(user, OPEN))
        assert asyncio.run(bench.backends.allows(user, VhostAccess("ada", (), "/mine")))
    assert len(Told.asked) == 2


def test_a_backend_that_raises_has_refused_and_is_counted() -> None:
    async def fail() -> None:
        raise KeyError("a bug")

    Told.before = fail
    bench = Bench(("told", "told"), ("internal", "internal"))
    assert isinstance(bench.log_in(ADA), LoginRefused)
    assert bench.failures == 1
    assert isinstance(bench.log_in(LOVE), User), "the next step is tried"
    user = BackendUser("ada", "", "", authoriser="told")
    assert not asyncio.run(bench.backends.allows(user, OPEN))
    assert bench.failures == 3
    Told.before = None
    assert asyncio.run(bench.backends.allows(user, OPEN)), "a fault is not remembered"


def test_a_backend_that_does_not_answer_in_time_has_refused() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    Told.before = hang
    bench = Bench(("told", "told"), answer_s=0.01)
    assert isinstance(bench.log_in(ADA), LoginRefused)
    assert bench.failures == 1


def test_a_backend_with_settings_that_it_does_not_allow_is_not_made() -> None:
    bench = Bench(("told", "told"), vhst="/")
    assert bench.backends.missing() == ["told"]
    assert isinstance(bench.log_in(ADA), LoginRefused)
    assert bench.failures == 2


def test_a_backend_is_gone_with_its_plugin() -> None:
    async def use() -> None:
        bench = Bench(("told", "told"))
        assert bench.backends.missing() == []
        assert isinstance(await bench.backends.logged_in(ADA), User)
        bench.broker.log.submit(DisablePlugin("mine"))
        assert bench.backends.missing() == ["told"]
        bench.now = 15.0
        assert isinstance(await bench.backends.logged_in(ADA), LoginRefused)
        await bench.backends.stop()
        assert Told.closed == 1
        bench.broker.log.submit(EnablePlugin("mine", ()))
        assert isinstance(await bench.backends.logged_in(ADA), User)

    asyncio.run(use())


def test_answers_go_to_the_connection_that_asked_until_the_node_stops() -> None:
    async def use() -> None:
        bench = Bench(("told", "told"))
        bench.now = 7.0
        answers: list[object] = []
        bench.backends.log_in(ADA, answers.append)
        while not answers:
            await asyncio.sleep(0)
        assert isinstance(answers[0], BackendUser)
        assert bench.broker.now == 7.0
        user = answers[0]
        bench.backends.ask(user, OPEN, answers.append)
        while len(answers) < 2:
            await asyncio.sleep(0)
        bench.backends.ask(user, OPEN, answers.append)
        assert answers[1:] == [True, True], "what is remembered is answered at once"
        bench.backends.ask(user, VhostAccess("ada", (), "other"), answers.append)
        await bench.backends.stop()
        assert len(answers) == 3
        assert Told.closed == 1

    asyncio.run(use())
