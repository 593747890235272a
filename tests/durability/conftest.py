"""Fixtures: nodes whose directory outlives them, and a small disk."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.node_process import NodeProcess


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Make nodes with `NodeProcess`'s options, each with a directory for its logs; they are killed at the end."""
    made: list[NodeProcess] = []

    def make(**options: object) -> NodeProcess:
        directory = tmp_path / f"node.{len(made)}"
        directory.mkdir()
        made.append(NodeProcess(directory, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for node in made:
        node.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 40 MiB. Ask for it before `make_node`: nodes must end before it does."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "fluffle-test", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount(8)")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)
