"""Two brokers in the test's memory: what their HTTP APIs answer, and what was asked of them."""

from typing import Any
from urllib.parse import unquote

from node.cli.migrate.http_api import ApiFailed
from node.migrate.site import PATHS
from tests.node.migrate.sites import answers, queue_row

Row = dict[str, Any]


class FakeBroker:
    """A broker with queues and shovels, whose shovels move nothing. It implements what is used of `Api`.

    fails_after: so many changes are made; then the broker does not answer.
    """

    def __init__(self, host: str, **options: Any) -> None:
        self.shown, self.host = f"http://{host}:15672", host
        self.all_shown: tuple[str, ...] = (self.shown,)
        self.queues: dict[str, Row] = {}
        self.options = options
        self.shovels: dict[tuple[str, str], Row] = {}
        self.users: dict[str, Row] = {}
        self.asked: list[tuple[str, str]] = []
        self.fails_after: int | None = None

    def get(self, path: str) -> Any:
        if path == "/parameters/shovel":
            return [{"vhost": vhost, "name": name} for vhost, name in self.shovels]
        running = [{"vhost": vhost, "name": name, "state": "running"} for vhost, name in self.shovels]
        found = answers(list(self.queues.values()), **{"shovels": running, **self.options})
        [name] = [name for name, each in PATHS.items() if each == path]
        if name not in found:
            raise ApiFailed("no such path", 404)
        return found[name]

    def put(self, path: str, body: Any) -> None:
        self.request("PUT", path, body)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> bool:
        self.request("DELETE", path)
        return True

    def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        if self.fails_after is not None:
            if not self.fails_after:
                raise ApiFailed(f"{self.shown}: Connection refused")
            self.fails_after -= 1
        self.asked.append((method, path))
        words = [unquote(word) for word in path.partition("?")[0].split("/")[1:]]
        match [method, *words]:
            case ["PUT", "parameters", "shovel", vhost, name]:
                self.shovels[vhost, name] = body["value"]
            case ["DELETE", "parameters", "shovel", vhost, name]:
                self.shovels.pop((vhost, name), None)
            case ["PUT", "users", name]:
                self.users[name] = body
            case ["DELETE", "users", name]:
                self.users.pop(name, None)
            case ["POST", "definitions"]:
                for row in body["queues"]:
                    self.queues.setdefault(row["name"], queue_row(row["name"], arguments=row["arguments"]))
                return {"skipped": []}
        return None

    def count(self, begin: str) -> int:
        """The number of requests that began so."""
        return sum(f"{method} {path}".startswith(begin) for method, path in self.asked)
