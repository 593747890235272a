"""The logic of the UI's modules, without a browser: the files in `modules/`, run by node where there is one."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

MODULES: Final = Path(__file__).parent / "modules"
STATIC: Final = Path(__file__).parents[2] / "node" / "management" / "static"
NODE: Final = shutil.which("node")

READ: Final = """
import { readFile } from 'node:fs/promises';
import { SourceTextModule } from 'node:vm';
const files = process.argv.slice(1);
for (const file of files) new SourceTextModule(await readFile(file, 'utf8'), { identifier: file });
console.log(files.length);
"""
"""A program that compiles the modules that its arguments name; the first one with an error of syntax ends it."""

needs_node = pytest.mark.skipif(NODE is None, reason="there is no node here; the browser tests remain")


@needs_node
@pytest.mark.parametrize("file", sorted(MODULES.glob("*.test.mjs")), ids=lambda file: file.stem)
def test_module(file: Path) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--experimental-default-type=module", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_node
def test_every_module_can_be_read() -> None:
    assert NODE is not None
    files = sorted(map(str, STATIC.glob("js/**/*.js")))
    options = ["--experimental-vm-modules", "--no-warnings", "--input-type=module", "--eval", READ]
    done = subprocess.run(
        [NODE, *options, "--", *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{len(files)}\n"), done.stderr


def own_files() -> list[Path]:
    """Return our own files of the UI, without those that others made."""
    return [file for file in STATIC.rglob("*") if file.is_file() and "vendor" not in file.parts]


@pytest.mark.parametrize(
    "word",
    [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "setAttribute('style'",
    ],
)
def test_no_markup_is_made_of_text(word: str) -> None:
    users = [file.name for file in own_files() if file.suffix == ".js" and word in file.read_text()]
    assert users == []


def test_nothing_comes_from_elsewhere() -> None:
    for file in own_files():
        if file.suffix in (".js", ".css", ".html"):
            text = file.read_text().replace("http://www.w3.org/", "")  # names of SVG's vocabulary
            found = re.findall(r"https?://.*|@import.*|url\((?!#).*", text)
            assert found == [], file


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text()
    assert "<style" not in page
    assert " style=" not in page
    assert page.count("<script") == page.count('<script type="module" src=')


def test_files_are_short() -> None:
    long = {
        file.name: n
        for file in own_files()
        if file.suffix == ".js" and (n := len(file.read_text().splitlines())) > 600
    }
    assert long == {}
