"""The pictures of the documents: a shop among 400 other queues on three nodes, seen while a node is killed.

python -m tests.ui.screenshots docs/screenshots
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pika
from playwright.sync_api import Page, expect

from tests.kit.http_api import HttpApi
from tests.kit.managed_fluffle import ManagedNode, managed, start_managed_cluster
from tests.ui.browser import PHONE, chromium
from tests.ui.frame import go_to, log_in, section

LOAD_S: Final = 100.0
"""The shop works this long before the first picture, so that charts have something to show."""
AFTERWARDS_S: Final = 30.0
"""The shop works this long with a node less before a picture: half of the charts' minute is before the failover."""
BYTES_MAX: Final = 200_000
WIDE: Final = {"width": 1280, "height": 800}

QUEUES: Final = (
    *(
        "orders.created",
        "orders.paid",
        "orders.shipped",
        "orders.returned",
        "invoices.print",
        "invoices.archive",
    ),
    *("mail.outgoing", "mail.bounced", "stock.reserve", "stock.release", "search.index", "audit"),
)
CROWD: Final = 400
"""Mirrored queues beside the shop's: a failover of a node is one of a third of them."""
KEYS_OF_EACH: Final = 25
"""By which each of them is bound to one exchange: it has 10,000 bindings."""
KEYS: Final = (*QUEUES, *("orders.created",) * 5)
CONSUMED: Final = (*QUEUES[:6], "stock.release", "stock.reserve", "search.index")


class Shop:
    """Publishers and consumers on all nodes, which go elsewhere when theirs is gone."""

    def __init__(self, nodes: list[ManagedNode]) -> None:
        self._nodes = nodes
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        api = HttpApi(self._nodes[0])
        both = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        two = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
        for name, pattern, definition in (
            ("all", "^(orders|invoices|mail)", both),
            ("two", "^(stock|search)", two),
        ):
            body = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
            assert api.put(f"/policies/%2F/{name}", body).status == 201
        for number, name in enumerate(QUEUES):
            with self._connection(number, "setup") as connection:
                channel = connection.channel()
                channel.exchange_declare("shop", "topic", durable=True)
                channel.queue_declare(name, durable=True)
                channel.queue_bind(name, "shop", name)
        for number in range(3):
            self._begin(self._publish, number)
        for number, name in enumerate(CONSUMED):
            self._begin(self._consume, number, name)

    def crowd(self) -> None:
        """Make the other queues and their bindings."""
        names = [f"tenant.{number:03d}" for number in range(CROWD)]
        policy = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
        document = {
            "policies": [
                {
                    "vhost": "/",
                    "name": "tenants",
                    "pattern": "^tenant",
                    "definition": policy,
                    "apply-to": "queues",
                }
            ],
            "exchanges": [
                {
                    "vhost": "/",
                    "name": "tenants",
                    "type": "topic",
                    "durable": True,
                    "auto_delete": False,
                    "internal": False,
                    "arguments": {},
                }
            ],
            "queues": [
                {"vhost": "/", "name": name, "durable": True, "auto_delete": False, "arguments": {}}
                for name in names
            ],
            "bindings": [
                {
                    "vhost": "/",
                    "source": "tenants",
                    "destination": name,
                    "destination_type": "queue",
                    "routing_key": f"{name}.{key:02d}",
                    "arguments": {},
                }
                for name in names
                for key in range(KEYS_OF_EACH)
            ],
        }
        answer = HttpApi(self._nodes[0]).post("/definitions", document)
        assert answer.status == 204, answer.text
        assert HttpApi(self._nodes[0]).post("/rebalance/queues", {}).status == 204

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(20)

    def _connection(self, number: int, name: str) -> Any:
        node = self._nodes[number % len(self._nodes)]
        properties = {"connection_name": name, "product": "shop"}
        return pika.BlockingConnection(
            pika.ConnectionParameters(node.host, node.port, heartbeat=0, client_properties=properties)
        )

    def _begin(self, work: Callable[..., None], number: int, *more: str) -> None:
        def run() -> None:
            attempt = number
            while not self._over.is_set():
                try:
                    work(attempt, *more)
                except (pika.exceptions.AMQPError, OSError):
                    attempt += 1
                    time.sleep(0.5)

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _publish(self, number: int) -> None:
        with self._connection(number, f"web-{number}") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            order = 0
            while not self._over.is_set():
                order += 1
                key = KEYS[order * (number + 1) % len(KEYS)]
                body = {
                    "order": 4_000 + order,
                    "customer": "Ada",
                    "items": [{"name": "tea", "count": 2}],
                    "total": 12.5,
                }
                properties = pika.BasicProperties(
                    content_type="application/json", delivery_mode=2, headers={"trace": f"{number}-{order}"}
                )
                channel.basic_publish("shop", key, json.dumps(body).encode(), properties)
                connection.sleep((0.01, 0.05, 0.09)[order // 60 % 3])

    def _consume(self, number: int, queue: str) -> None:
        with self._connection(number, f"worker-{queue}") as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=20)
            for method, _, _ in channel.consume(queue, inactivity_timeout=0.5):
                if self._over.is_set():
                    return
                if method is not None:
                    channel.basic_ack(method.delivery_tag)
                    connection.sleep(0.06)


class Camera:
    """Takes pictures into a folder."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def page(self, url: str, *, is_dark: bool = False, **options: Any) -> Page:
        """A page that is logged in."""
        scheme = "dark" if is_dark else "light"
        shape = {"viewport": WIDE, "reduced_motion": "reduce", "color_scheme": scheme, **options}
        page: Page = self._browser.new_context(**shape).new_page()
        page.goto(url)
        log_in(page)
        # The shop has not been open for long.
        page.evaluate("""localStorage.setItem("fluffle.prefs",
            JSON.stringify({"range.overview": "60|5", "range.queue": "60|5"}))""")
        page.reload()
        expect(page.locator("nav.tabs")).to_be_visible()
        return page

    def take(self, page: Page, name: str) -> None:
        page.mouse.move(5, 5)
        page.evaluate("document.activeElement?.blur()")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(600)
        path = self._folder / f"{name}.png"
        page.screenshot(path=path, animations="disabled")
        assert path.stat().st_size <= BYTES_MAX, f"{path} has {path.stat().st_size} bytes"


def main(folder: str) -> None:
    cluster = start_managed_cluster()
    nodes = managed(cluster)
    shop = Shop(nodes)
    try:
        shop.open()
        shop.crowd()
        time.sleep(LOAD_S)
        with chromium() as browser:
            take_all(Camera(browser, Path(folder)), cluster, nodes)
    finally:
        shop.close()
        cluster.stop()


def take_all(camera: Camera, cluster: Any, nodes: list[ManagedNode]) -> None:
    """The pictures, the last ones with a node less."""
    master = HttpApi(nodes[0]).get("/queues/%2F/orders.created").json["node"]
    other = next(node for node in nodes if node.name != master)
    page = camera.page(other.management_url)
    camera.take(page, "overview")
    go_to(page, "#/queues")
    camera.take(page, "queues")
    go_to(page, f"#/nodes/{other.name}")
    expect(page.locator(".stack-parts li").first).to_be_visible(timeout=60_000)
    camera.take(page, "node")
    go_to(page, "#/exchanges/%2F/tenants")
    expect(page.locator(".count").first).to_have_text("10,000 bindings", timeout=60_000)
    camera.take(page, "exchange")
    go_to(page, "#/queues/%2F/mail.outgoing")
    browser = section(page, "queue.get")
    browser.locator("select[name=count]").select_option("5")
    browser.get_by_role("button", name="Get messages").click()
    expect(browser.locator("article.message")).to_have_count(5)
    browser.evaluate("each => scrollTo(0, each.getBoundingClientRect().top + scrollY - 110)")
    camera.take(page, "messages")
    dark = camera.page(other.management_url, is_dark=True)
    go_to(dark, "#/queues/%2F/orders.created")
    expect(dark.locator(".ring-node.is-synced")).to_have_count(2)
    camera.take(dark, "queue-dark")
    phone = camera.page(other.management_url, viewport=PHONE, is_mobile=True, has_touch=True, is_dark=True)
    go_to(phone, "#/rings/%2F/orders.created")
    camera.take(phone, "phone")

    go_to(page, "#/queues/%2F/orders.created")
    cluster.node(master).kill()
    expect(page.locator(".banner").first).to_be_visible(timeout=60_000)
    expect(page.locator(".events li", has_text="Failover").first).to_be_visible(timeout=60_000)
    expect(page.locator(".toast")).to_have_count(0, timeout=60_000)
    page.wait_for_timeout(AFTERWARDS_S * 1000)
    camera.take(page, "failover")
    go_to(page, "#/rings")
    camera.take(page, "rings")
    cluster.heal()
    go_to(page, "#/rebalance")
    expect(page.locator(".banner")).to_have_count(0, timeout=60_000)
    expect(page.get_by_role("button", name="Rebalance now")).to_be_visible(timeout=60_000)
    camera.take(page, "rebalance")


if __name__ == "__main__":
    main(*sys.argv[1:])
