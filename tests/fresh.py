"""`python -c CODE` with the library imported beforehand: importing it takes longer than most of what runs there.

The first call starts a server that imports the library and does nothing else; every process is a fork of it. So nothing
that one leaves behind is seen by another, and it can be killed.
"""

import multiprocessing
import os
import sys
import tempfile
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["identifiable", "identifiable.cli"])


def start(code, *arguments, cwd=None, stdout=os.devnull, stderr=os.devnull, **environment) -> BaseProcess:
    """Start a process that runs the code with these arguments in sys.argv, and prints to these files."""
    where = os.fspath(cwd or Path.cwd())
    process = CONTEXT.Process(target=_run, args=(code, arguments, where, stdout, stderr, environment))
    process.start()
    return process


def run(code, *arguments, cwd=None, **environment) -> CompletedProcess[str]:
    """Run the code to its end, and return what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        process = start(code, *arguments, cwd=cwd, stdout=stdout, stderr=stderr, **environment)
        process.join()
        return CompletedProcess(arguments, process.exitcode, stdout.read_text(), stderr.read_text())


def _run(code, arguments, cwd, stdout, stderr, environment):
    for number, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["-c", *map(str, arguments)]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
