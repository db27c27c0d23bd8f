from multiprocessing import forkserver

import pytest

import fresh
from identifiable.experiments import processes


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def forked(request, monkeypatch):
    """Workers that have imported the library already; a test that asks for `loky` gets those that users have."""
    forkserver.ensure_running()  # before the first sweep hides Ctrl-C from it
    if "loky" not in request.fixturenames:
        monkeypatch.setattr(processes, "_context", lambda: fresh.CONTEXT)


@pytest.fixture
def loky():
    """Workers that begin as new interpreters."""
