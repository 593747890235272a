"""The facts that tests of tidiness look at in a Python file of this repository; each file is parsed once.

The tests of a process share what was found. The syntax trees themselves are not kept: those of all files together have
some millions of objects.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """A statement `from module import names`, or, without a module, `import names`.

    module: a relative one begins with its dots.
    """

    line: int
    module: str
    names: tuple[str, ...]


class Source(NamedTuple):
    """The facts of one file.

    has_code: something stands in it.   docstring: of the module, cleaned.   docstrings: of the module, its classes and
    its functions, cleaned.   strings: all that stand alone, those behind constants and attributes included.
    functions: each name with the number of its lines.
    """

    has_code: bool
    docstring: str | None
    docstrings: tuple[str, ...]
    strings: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    imports: tuple[Import, ...]


@cache
def source(path: Path) -> Source:
    """Return the facts of a file. Raises: SyntaxError."""
    tree = _tree(path)
    docstrings: list[str] = []
    strings: list[str] = []
    functions: list[tuple[str, int]] = []
    imports: list[Import] = []
    for node in _statements(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if found := ast.get_docstring(node):
                    docstrings.append(found)
                if not isinstance(node, ast.Module | ast.ClassDef):
                    assert node.end_lineno is not None
                    functions.append((node.name, node.end_lineno - node.lineno + 1))
            case ast.Expr(value=ast.Constant(value=str(text))):
                strings.append(text.strip())
            case ast.Import():
                imports.append(Import(node.lineno, "", tuple(each.name for each in node.names)))
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                imports.append(Import(node.lineno, module, tuple(each.name for each in node.names)))
    return Source(
        bool(tree.body),
        ast.get_docstring(tree),
        tuple(docstrings),
        tuple(strings),
        tuple(functions),
        tuple(imports),
    )


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each call of a name, or of a dotted name as it is written."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and (name := _dotted(node.func)) is not None:
            yield node.func.lineno, name


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _statements(tree: ast.Module) -> list[ast.AST]:
    """Return the module and all statements in it; expressions, which are most of a tree, are not looked at."""
    found: list[ast.AST] = [tree]
    for node in found:  # it grows meanwhile
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, part, ())
    return found


def _dotted(expression: ast.expr) -> str | None:
    parts = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name):
        return None
    return ".".join((expression.id, *reversed(parts)))
