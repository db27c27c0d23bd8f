"""Imports run one way: DESIGN in one table. A room may import the rooms of lower rank, and its own."""

import ast
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "identifiable"

RANK = {
    "errors": 0,
    "mixture": 1,
    "conditional": 1,
    "nets": 1,
    "flows": 1,
    "densities": 1,
    "store": 1,
    "sweep": 1,
    "progress": 2,
    "exact_likelihood": 1,
    "data": 2,
    "metrics": 2,
    "certify": 2,
    "restarts": 3,
    "train": 3,
    "estimators": 4,
    "persist": 7,
    "select": 5,
    "causal": 5,
    "search": 5,
    "identify": 6,
    "report": 6,
    "experiments": 6,
    "recipes": 7,
    "run": 8,
    "demo": 8,
    "fit": 8,
    "reproduce": 9,
    "cli": 10,
    "__main__": 11,
}


def imports_of(path):
    """Every import of the library's own modules, those inside functions too, as (line, room)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "identifiable":
            rooms = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            yield from ((node.lineno, room) for room in rooms)
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ((node.lineno, n[1]) for n in names if n[0] == "identifiable" and len(n) > 1)
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}:{node.lineno}: relative import"


def test_imports_run_one_way():
    wrong = []
    for path in SRC.rglob("*.py"):
        room = path.relative_to(SRC).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in RANK, f"{room}: a new room needs its rank in this table"
        wrong += [
            f"{path.name}:{line}: {room} imports {other}"
            for line, other in imports_of(path)
            if other in RANK and other != room and RANK[other] >= RANK[room]
        ]
    assert not wrong, "\n".join(wrong)


def test_one_rank_down_is_seen(tmp_path):
    """The reader of imports finds them in every form."""
    source = tmp_path / "a.py"
    source.write_text(
        "from identifiable.train import minimise\nimport identifiable.cli\n"
        "def f():\n    from identifiable import store, nets\n"
    )
    assert sorted(imports_of(source)) == [(1, "train"), (2, "cli"), (4, "nets"), (4, "store")]


def test_importing_the_library_is_light():
    """Heavy or optional packages are imported where they are used."""
    import subprocess
    import sys

    code = "import sys, identifiable; print([m for m in ('matplotlib', 'zuko', 'pooch') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
