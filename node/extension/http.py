"""The interface of plug-ins that answer HTTP requests, and that bring a page for the web UI.

A resource answers requests below `/api/plugins/NAME/`. The node checks the user's name, password and tag before, as for
its own resources, and gives an answer a time limit. `answer` is a coroutine on the node's loop: it must await, and
never block. A page is a module of JavaScript beside those of the UI, with the same interface; js/app.js explains it.

    GET /api/plugins/NAME/counts ─► HttpResource.answer ─► HttpAnswer       #/plugins/NAME ─► the page's script
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from node.extension.setting import Settings

Tag: TypeAlias = Literal["management", "policymaker", "monitoring", "administrator"]
"""The tag that a user needs, or one that includes it."""

TAGS: Final = get_args(Tag)

FILES_MAX_BYTES: Final = 1024 * 1024
"""The most bytes of all files of a page."""

_FILE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a resource.

    method: GET, PUT, POST or DELETE; a HEAD comes as a GET.   path: the segments behind the plug-in's name, decoded.
    query: of each name the last parameter.   user, tags: the caller.   may_see: True if the caller may see a vhost.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes
    user: str
    tags: tuple[str, ...]
    may_see: Callable[[str], bool] = field(repr=False)


class HttpAnswer(NamedTuple):
    """An answer: `value` is sent as JSON, or `body` as it is; without both it is empty.

    status: 200 to 599.   content_type: of `body`.
    """

    status: int = 200
    value: Any = None
    body: bytes | None = None
    content_type: str = "text/plain; charset=utf-8"


class HttpResource(ABC):
    """Answers the requests below `/api/plugins/NAME/`; a plug-in derives its own from it.

    reads, changes: the tags for GET, and for all other methods.
    There is one object on each node while the plug-in is enabled; it is made with the first request.
    """

    reads: ClassVar[Tag] = "monitoring"
    changes: ClassVar[Tag] = "administrator"

    def __init_subclass__(cls) -> None:
        """Check the tags."""
        super().__init_subclass__()
        assert cls.reads in TAGS, f"{cls.reads} is no tag"
        assert cls.changes in TAGS, f"{cls.changes} is no tag"

    def __init__(self, settings: Settings, node: str) -> None:
        """Make the resource.   settings: those of the plug-in, by their keys.   node: the name of this node."""
        self.settings = settings
        self.node = node

    @abstractmethod
    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a request, such as a 404 for a path that there is not."""

    def close(self) -> None:
        """Release what the resource holds: the plug-in was disabled."""
        return


@dataclass(frozen=True, slots=True)
class UiPage:
    """A page of the web UI, at `#/plugins/NAME`.

    menu: its entry in the menu of the tab Admin.   script: the file with the page's module.
    files: contents by names such as `counts.js`, served to everybody below `/plugins/NAME/`, as the UI's own files.
    tag: the tag that a user needs to see the page.
    """

    menu: str
    script: str
    files: Mapping[str, bytes] = field(repr=False)
    tag: Tag = "monitoring"

    def __post_init__(self) -> None:
        assert self.tag in TAGS, f"{self.tag} is no tag"
        assert all(_FILE.fullmatch(name) for name in self.files), (
            "a file's name has letters, digits, _, - and ."
        )
        assert self.script in self.files, "the script is one of the files"
        assert sum(map(len, self.files.values())) <= FILES_MAX_BYTES, "the files of a page are too large"
