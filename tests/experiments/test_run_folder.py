"""The folder of a sweep: damaged, moved, merged and locked folders keep every finished run."""

import fcntl
from dataclasses import replace

import pytest

from identifiable.errors import DamagedFileError
from identifiable.experiments.recipe import Record
from identifiable.experiments.run_folder import RunFolder, collect, is_run_folder, merge, read_records
from run_helpers import files, one_run, runs


def written(path, seeds, *, failed=()):
    """A folder with one record per seed."""
    folder = RunFolder(path)
    with folder.locked():
        for seed in seeds:
            failure = {"status": "failed", "error": "no"} if seed in failed else {"status": "done"}
            folder.write(Record(one_run(seed), seconds=float(seed), metrics={"mcc": seed / 10}, **failure))
    return folder


def test_a_written_record_is_read_back(folder):
    kept = written(folder, [3])
    assert files(folder) == ["cells", f"cells/{one_run(3).key}.json"]
    text = kept.file_of(one_run(3)).read_text()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert kept.read(one_run(3)).metrics == {"mcc": 0.3}
    assert is_run_folder(folder)
    with pytest.raises(FileNotFoundError):
        kept.read(one_run(4))


def test_collect_keeps_the_requested_order_and_lists_what_is_missing(folder):
    written(folder, [0, 1], failed=[1])
    results = collect(runs(3)[::-1], folder)
    assert [r.run.seed for r in results.records] == [1, 0]
    assert (results.done, results.failed, results.missing) == (1, 1, (one_run(2),))


DAMAGES = [
    lambda text: b"",
    lambda text: text[: len(text) // 2],
    lambda text: b"\xff\xfe" + text,
    lambda text: b"3",
    lambda text: text.replace(b'"done"', b'"perhaps"'),
    lambda text: text.replace(b'"metrics": {', b'"metrics": [{').replace(b'}, "seconds"', b'}], "seconds"'),
    lambda text: text.replace(b'"seed": 1}', b'"seed": 2}').replace(b'"seed": 1,', b'"seed": 2,'),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_found_by_its_run(folder, damage):
    kept = written(folder, [0, 1, 2])
    path = kept.file_of(one_run(1))
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(DamagedFileError, match=one_run(1).key):
        kept.read(one_run(1))
    found, files_damaged = kept.find(runs(3))
    assert [r.run.seed for r in found.values()] == [0, 2]
    assert files_damaged == [path]
    assert collect(runs(3), folder).missing == (one_run(1),)


def test_damaged_and_unfinished_files_are_left_out_of_the_records(folder):
    kept = written(folder, [0, 1, 2])
    kept.file_of(one_run(1)).write_text("{")
    for name in ("a.json", ".x.json.abc.part"):
        (kept.records / name).write_text("no")
    with pytest.warns(UserWarning, match=r"a\.json") as caught:
        records = read_records(folder)
    assert one_run(1).key in str(caught[0].message)
    assert len(caught) == 1
    assert sorted(r.run.seed for r in records) == [0, 2]
    token = kept.begin()
    assert kept.has_token(token)
    assert not kept.has_token(kept.begin()[:5])
    assert not kept.has_token(token)
    assert files(folder) == sorted(["cells", "cells/a.json", *(f"cells/{run.key}.json" for run in runs(3))])


def test_a_file_and_a_folder_without_records_are_refused(tmp_path):
    assert not is_run_folder(tmp_path)
    for read in (read_records, lambda folder: merge([folder], tmp_path / "into")):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            read(tmp_path / "nowhere")
    assert not (tmp_path / "into").exists()
    file = tmp_path / "file"
    file.write_text("")
    for use in (RunFolder(file).require_not_a_file, lambda: merge([], file)):
        with pytest.raises(NotADirectoryError):
            use()


def test_merged_folders_hold_every_record_once(tmp_path):
    a, b, into = tmp_path / "a", tmp_path / "b", tmp_path / "deep" / "into"
    written(a, range(3))
    written(b, range(1, 5))
    RunFolder(b).write(replace(RunFolder(b).read(one_run(1)), seconds=99.0))
    assert merge([a, b], into) == 5
    assert merge([a, b, into], into) == 0
    assert [r.run.seed for r in collect(runs(5), into).records] == list(range(5))
    assert collect(runs(5), into).records[1] == collect(runs(5), a).records[1]


def test_a_done_record_replaces_a_failed_one_and_otherwise_the_first_stays(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    written(a, [0, 1], failed=[1])
    written(b, [0, 1])
    RunFolder(b).write(replace(RunFolder(b).read(one_run(0)), seconds=99.0))
    done = collect(runs(2), b).records
    for order in ([a, b], [b, a]):
        into = tmp_path / f"into{order.index(a)}"
        merge(order, into)
        first = collect(runs(2), order[0]).records
        assert collect(runs(2), into).records == (first[0], done[1])
    assert merge([a], b) == 0
    assert collect(runs(2), b).records == done
    assert merge([b], a) == 1
    assert collect(runs(2), a).records[1] == done[1]


def test_two_processes_cannot_fill_one_folder(folder):
    folder.mkdir()
    with (folder / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="Another process"), RunFolder(folder).locked():
            pass
        with pytest.raises(RuntimeError, match="Another process"):
            merge([], folder)
    with RunFolder(folder).locked():
        assert is_run_folder(folder)
