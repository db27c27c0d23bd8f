"""Imports run one way: a package may import packages of lower rank, and itself."""

import ast
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "identifiable"

RANK = {
    "errors": 0,
    "arrays": 0,
    "files": 1,
    "distributions": 1,
    "nets": 1,
    "flows": 1,
    "priors": 2,
    "data": 2,
    "metrics": 2,
    "theory": 3,
    "training": 3,
    "agreement": 4,
    "algorithms": 4,
    "estimators": 5,
    "causal_graph": 3,
    "causal": 6,
    "auto": 7,
    "persist": 8,
    "experiments": 9,
    "report": 10,
    # What writes a folder also writes its page.
    "auto.folder": 11,
    "experiments.reproduce": 11,
    "experiments.demo": 12,
    "cli": 13,
    "__main__": 14,
}


def package_of(module):
    """The entry of RANK a module belongs to: its own, or that of its package."""
    return ".".join(module[:2]) if ".".join(module[:2]) in RANK else module[0]


def imports_of(path):
    """Every import of the library's own modules, also inside functions, as (line, package)."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}:{node.lineno}: relative import"
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [[*node.module.split("."), alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        else:
            continue
        found = {package_of(module[1:]) for module in modules if module[0] == "identifiable" and len(module) > 1}
        yield from ((node.lineno, package) for package in found)


def test_imports_run_one_way():
    wrong = []
    for path in SRC.rglob("*.py"):
        package = package_of(path.relative_to(SRC).with_suffix("").parts)
        if package == "__init__":
            continue
        assert package in RANK, f"{package}: a new package needs its rank in this table"
        wrong += [
            f"{path.name}:{line}: {package} imports {other}"
            for line, other in imports_of(path)
            if other in RANK and other != package and RANK[other] >= RANK[package]
        ]
    assert not wrong, "\n".join(wrong)


def test_import_identifiable_does_not_import_torch():
    import subprocess
    import sys

    heavy = ("torch", "sklearn", "pandas", "matplotlib", "zuko", "pooch")
    code = f"import sys, identifiable; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
