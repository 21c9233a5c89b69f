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
        if "template" in file.parts:  # what `smartfl flower new` copies is a package of its user's
            continue
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


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """The private names that a module defines, and those that it takes from elsewhere (``x._name``, imports)."""
    own, used = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            (own if mine else used).add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("smartfl"):
            used |= {alias.name for alias in node.names}
    return set(filter(private, own)), set(filter(private, used))


def test_private_names_stay_in_their_package():
    """A private name that is used on something else is defined in the same package, or is none of ours."""
    own: dict[str, set[str]] = {}
    used: dict[Path, set[str]] = {}
    for file in ROOT.rglob("*.py"):
        defined, used[file] = private_names(ast.parse(file.read_text()))
        own.setdefault(file.relative_to(ROOT).parts[0], set()).update(defined)
    ours = set().union(*own.values())
    found = {
        file.name: names
        for file, all_used in used.items()
        if (names := all_used & ours - own[file.relative_to(ROOT).parts[0]])
    }
    assert not found


def test_a_private_name_of_another_is_found():
    tree = ast.parse("from smartfl.data.fetch import _get\nx._seen = 1\nself._own = 2\ndef _f(): torch._fused()")
    assert private_names(tree) == ({"_own", "_f"}, {"_get", "_seen", "_fused"})
