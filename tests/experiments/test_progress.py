"""Progress of a sweep: a line per run, a bar in a terminal, and the time left."""

import pytest

from identifiable.experiments.progress import SweepProgress, TimeLeft, time_left_text
from identifiable.experiments.recipe import Record
from run_helpers import one_run, runs

RECORDS = [
    Record(one_run(0), "done", 0.01),
    Record(one_run(1), "failed", 1.0, error="ValueError: no rank"),
    Record(one_run(2, method="[B]"), "done", 0.01),
]


def report(records, known=(), verbose=1):
    """Show the progress of these records."""
    waiting = [record.run for record in records]
    with SweepProgress(len(known) + len(records), known, waiting, lambda: 1, verbose) as progress:
        for record in records:
            progress.show(record)


def test_a_line_per_run_without_a_terminal(capsys):
    report(RECORDS[1:], known=RECORDS[:1])
    report(RECORDS, verbose=0)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "2/3  n = 5  A  seed 1  failed: ValueError: no rank  about 1 s left",
        "3/3  n = 5  [B]  seed 2  0.0 s",
    ]


def test_a_bar_and_the_failures_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    report(RECORDS)
    printed = capsys.readouterr().err
    assert "3/3" in printed
    assert "1 failed" in printed
    assert "seed 1  failed: ValueError" in printed
    assert "seed 2" not in printed


def test_time_left_is_estimated_from_the_same_method_or_else_any():
    waiting = [one_run(s, method=m) for m, n in (("A", 3), ("B", 2), ("C", 1)) for s in range(n)]
    assert TimeLeft([], waiting).seconds(1) is None
    finished = [Record(one_run(method=m), "done", s) for m, s in (("A", 10.0), ("A", 20.0), ("B", 60.0))]
    estimate = TimeLeft(finished, waiting)
    assert estimate.seconds(1) == pytest.approx(3 * 15 + 2 * 60 + 1 * 30)
    assert estimate.seconds(5) == pytest.approx(195 / 5)
    assert estimate.seconds(100) == pytest.approx(195 / 6)
    estimate.add(Record(one_run(method="C"), "done", 10.0))
    assert estimate.seconds(1) == pytest.approx(3 * 15 + 2 * 60)
    assert TimeLeft(finished, runs(0)).seconds(1) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.0, ""), (0.2, "about 1 s left"), (89.0, "about 89 s left"), (91.0, "about 2 min left")],
)
def test_time_left_in_words(seconds, text):
    assert time_left_text(seconds) == text
