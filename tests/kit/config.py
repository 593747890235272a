"""This module makes a configuration from text, as a node would load it."""

import fnmatch
from collections.abc import Mapping

from node.config.config import Config
from node.config.load import DEFAULT_FILE, StartOptions, load_config


class MemoryFiles:
    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def read(self, path: str) -> bytes | None:
        text = self.files.get(path)
        return None if text is None else text.encode()

    def expand(self, pattern: str) -> list[str]:
        return sorted(
            p for p in self.files if fnmatch.fnmatch(p, pattern) or fnmatch.fnmatch(p, f"{pattern}/*.conf")
        )

    def readable(self, path: str) -> bool:
        return path in self.files

    def is_private(self, path: str) -> bool:
        return not path.startswith("/open")


def load(
    text: str = "",
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    options: StartOptions | None = None,
) -> Config:
    all_files = {DEFAULT_FILE: text, **(files or {})}
    return load_config(
        options or StartOptions(), environ or {}, MemoryFiles(all_files), hostname="box.example.org"
    )
