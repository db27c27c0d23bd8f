"""Runs that are fitted in one batch end as the same records as runs that are fitted one by one."""

from dataclasses import replace

import pytest
import torch

from identifiable.experiments import together
from identifiable.experiments.papers import find
from identifiable.experiments.run_folder import RunFolder
from identifiable.experiments.together import batches, run_together


@pytest.fixture
def runs():
    """Two runs of PDGMM with few rows and steps, and a baseline."""
    small = {"n": 2, "rows": 300, "layers": 1, "new_rows": 100}
    chosen = [run for run in find("xu2026/table1").runs(seeds=2) if run.setting == "n=5"]
    return [
        replace(
            run,
            values=run.values | small,
            how=replace(run.how, params={"max_steps": 20, "extended": False} if run.method == "PDGMM" else {}),
        )
        for run in chosen
        if run.method in ("PDGMM", "PCA")
    ]


def test_runs_of_one_method_and_size_share_a_batch(runs):
    other = replace(runs[-1], values=runs[-1].values | {"n": 3})
    assert [[run.method for run in batch] for batch in batches([*runs, other])] == [["PDGMM"] * 2, ["PDGMM"]]
    assert [len(batch) for batch in batches([replace(other, seed=seed) for seed in range(together.MOST + 1)])] == [
        together.MOST,
        1,
    ]


def test_nothing_is_fitted_in_a_batch_without_a_gpu(runs, tmp_path):
    run_together(runs, tmp_path / "new", device="auto")
    assert not (tmp_path / "new").exists()


def test_a_batch_writes_a_record_for_each_run_and_keeps_those_that_exist(runs, tmp_path, monkeypatch):
    batch = [run for run in runs if run.method == "PDGMM"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    tasks = together.fit_batch
    monkeypatch.setattr(together, "fit_batch", lambda given: tasks([replace(task, device="cpu") for task in given]))
    run_together(batch, tmp_path, device="cuda", verbose=0)
    found, damaged = RunFolder(tmp_path).find(batch)
    assert not damaged
    assert {record.status for record in found.values()} == {"done"}
    assert {record.run.key for record in found.values()} == {run.key for run in batch}
    assert all(0 < record.metrics["mcc"] <= 1 for record in found.values())
    kept = RunFolder(tmp_path).file_of(batch[0])
    before = kept.stat().st_mtime_ns
    RunFolder(tmp_path).file_of(batch[1]).unlink()
    run_together(batch, tmp_path, device="cuda", verbose=0)
    assert kept.stat().st_mtime_ns == before
    assert len(RunFolder(tmp_path).find(batch)[0]) == 2
