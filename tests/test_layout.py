"""Packages import each other in one direction."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import smartfl

ROOT = Path(smartfl.__file__).parent


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Every module of smartfl that is imported, inside functions too, but for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (name for other in node.orelse for name in imports_of(other))
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports would not be seen"
            yield from ([node.module] if node.module != "smartfl" else [f"smartfl.{a.name}" for a in node.names])
        yield from imports_of(node)


def package_of(module: str) -> str:
    """``smartfl.data.cifar`` is in ``data``; modules beside the packages stand for themselves."""
    return module.split(".")[1]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Which packages each package imports."""
    edges: dict[str, set[str]] = {}
    for file in ROOT.rglob("*.py"):
        own = file.relative_to(ROOT).with_suffix("").parts[0]
        found = {package_of(name) for name in imports_of(ast.parse(file.read_text())) if name.startswith("smartfl.")}
        edges.setdefault(own, set()).update(found - {own})
    return edges


def test_no_package_imports_one_that_imports_it(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"packages import each other in a circle: {' <- '.join(error.args[1])}")


def test_the_graph_is_seen(graph):
    """Imports inside functions and at the top; nothing imports the command line."""
    assert {"records", "experiment", "executors"} <= graph["reproduce"]
    assert "reproduce" not in graph["report"]
    assert "report" not in graph["reproduce"]
    assert not any("cli" in imported for name, imported in graph.items() if name != "__main__")


def test_a_cycle_is_found():
    tree = ast.parse("def f():\n    from smartfl.cli import main\nif TYPE_CHECKING:\n    import smartfl.data")
    assert list(imports_of(tree)) == ["smartfl.cli"]
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
