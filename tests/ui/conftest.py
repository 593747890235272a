"""Fixtures of the web UI's tests: a cluster of three nodes with management, and browsers that watch their pages.

`FLUFFLE_SCREENSHOTS=docs/screenshots` keeps the pictures that the tests take there.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from playwright.sync_api import Browser, Page

from tests.kit.http_api import HttpApi
from tests.kit.managed_fluffle import ManagedNode, managed, start_managed_cluster
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster
from tests.ui import content
from tests.ui.browser import DESKTOP, PHONE, Watch, chromium
from tests.ui.frame import log_in


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests; each page has a context, and so a storage, of its own."""
    with chromium() as started:
        yield started


class Site:
    """A cluster, made whole again when a test asks for it."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The three nodes, all running."""
        if self._cluster is not None:
            try:
                self._cluster.heal()
            except (AssertionError, OSError, RuntimeError) as error:
                warnings.warn(f"the cluster could not be healed: {error}", stacklevel=1)
                self.stop()
        if self._cluster is None:
            self._cluster = start_managed_cluster()
        return self._cluster

    @property
    def nodes(self) -> list[ManagedNode]:
        return managed(self.cluster)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Three nodes, each with the UI on its management port."""
    made = Site()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def filled(site: Site) -> Iterator[str]:
    """The cluster with something to look at; the name of a connection that stays. Its client is on the last node."""
    api = HttpApi(site.nodes[0])
    connection = content.fill(api, site.nodes[-1])
    yield content.own_connection(api, wait_until)
    with contextlib.suppress(pika.exceptions.AMQPError):  # its node may have been killed
        connection.close()


@pytest.fixture
def watches(browser: Browser) -> Iterator[Callable[..., Watch]]:
    """Make watched pages: `watches(is_phone=True, can_lose_node=True)`. The end of the test checks them."""
    made: list[Watch] = []

    def make(*, is_phone: bool = False, can_lose_node: bool = False, **options: object) -> Watch:
        shape = (
            {"viewport": PHONE, "has_touch": True, "is_mobile": True} if is_phone else {"viewport": DESKTOP}
        )
        context = browser.new_context(**{**shape, "reduced_motion": "reduce", **options})  # type: ignore[arg-type]
        made.append(Watch(context, can_lose_node=can_lose_node))
        return made[-1]

    yield make
    for watch in made:
        watch.page.context.close()
    for watch in made:
        watch.check()


@pytest.fixture
def page(watches: Callable[..., Watch], site: Site) -> Page:
    """A page of the first node, logged in as guest."""
    watch = watches()
    watch.open(site.nodes[0].management_url)
    log_in(watch.page)
    return watch.page


@pytest.fixture
def keep_picture() -> Callable[..., None]:
    """Take a screenshot: `keep_picture(page, "queue")`. Does nothing without FLUFFLE_SCREENSHOTS."""
    folder = os.environ.get("FLUFFLE_SCREENSHOTS")

    def keep(page: Page, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{folder}/{name}.png", animations="disabled")

    return keep
