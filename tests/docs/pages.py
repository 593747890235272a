"""The commands of a page, to be run as they stand there but for the places: hosts, ports and directories.

    page = Page("tls", {"broker.example.com": "localhost", "/etc/fluffle": str(directory)})
    shell.run(page.block("sh", "## Certificates"))

A page's block is found by the heading above it, so that a page that is changed is tested as it is now, or the test
fails. A `Shell` has `fluffle` and a `python` with pika on its path.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.kit.node_process import NodeProcess
from tests.kit.server_process import ROOT

LIMIT_S: Final = 60.0
"""A command or a start may take this long; only a failing test waits so long."""


class Page:
    """One of docs/.   places: what its words for places are here."""

    def __init__(self, name: str, places: Mapping[str, str]) -> None:
        self.text = (ROOT / "docs" / f"{name}.md").read_text()
        self._places = places
        for word in places:
            assert word in self.text, f"docs/{name}.md does not name {word}"

    def block(self, language: str, heading: str, number: int = 0) -> str:
        """A block of a section, the first unless `number` says otherwise, with the places of this machine."""
        _, found, rest = self.text.partition(f"\n{heading}\n")
        assert found, f"there is no section {heading!r}"
        section = re.split(r"^#{1,3} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
        blocks = re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        assert len(blocks) > number, f"section {heading!r} has {len(blocks)} blocks of {language}"
        return self.here(blocks[number])

    def here(self, text: str) -> str:
        """Text of the page with the places of this machine."""
        # All at once: a place may look like the word for another one.
        words = sorted(self._places, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, words)), lambda found: self._places[found[0]], text)


class Shell:
    """Runs commands in a directory, as somebody at a terminal does who stops at the first failure."""

    def __init__(self, directory: Path, **environ: str) -> None:
        self.directory = directory
        programs = directory / "bin"
        programs.mkdir(exist_ok=True)
        for name, arguments in (("fluffle", "-m node"), ("python", ""), ("python3", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
            program.chmod(0o755)
        self.environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(directory),
            "XDG_RUNTIME_DIR": str(directory),
            **environ,
        }

    def add_program(self, name: str, script: str) -> None:
        """A program that a page names and this machine lacks, as lines of sh."""
        program = self.directory / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def run(self, commands: str, *, code: int = 0, **environ: str) -> str:
        """Return what the commands print; they must end with that code."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.directory,
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{commands}\n{done.returncode}: {done.stdout}"
        return done.stdout

    def run_python(self, program: str) -> str:
        """Return what a Python program prints."""
        path = self.directory / "program.py"
        path.write_text(program)
        return self.run("python program.py")

    @contextmanager
    def node(self, name: str, *options: str) -> "Iterator[PageNode]":
        """A node for as long as it is needed, which is ready."""
        node = PageNode(self, name, *options)
        try:
            node.wait_ready()
            yield node
        finally:
            if node.is_running:
                node.stop()


class PageNode(NodeProcess):
    """`fluffle start` with the data of `name`, below the shell's directory."""

    def __init__(self, shell: Shell, name: str, *options: str) -> None:
        super().__init__(
            shell.directory,
            name,
            data=shell.directory / "data" / name,
            listen="",
            environment=shell.environ,
            cwd=shell.directory,
            options=options,
        )
        self.launch()
