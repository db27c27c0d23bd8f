"""Latent variables you can trust: estimators with identifiability guarantees, and a certificate for each fit.

Public names are listed in `__init__.pyi`. Each is imported on first use, so that `import identifiable` is fast.
"""

import ast
import importlib.util
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _modules_of_names() -> dict[str, str]:
    """Read from the stub file which module defines each public name."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULES = _modules_of_names()
__all__ = ["__version__", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        if not name.startswith("_") and importlib.util.find_spec(f"identifiable.{name}"):
            return importlib.import_module(f"identifiable.{name}")
        raise AttributeError(f"module 'identifiable' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value  # later uses skip this function
    return value


def __dir__() -> list[str]:
    return __all__
