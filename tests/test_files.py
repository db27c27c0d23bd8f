"""Files are written all or nothing, and damaged or foreign files are refused."""

import os
import pickle
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from identifiable import VAE, DamagedFileError, files, load, save


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


@pytest.fixture(scope="module")
def model():
    x = np.random.default_rng(0).normal(size=(50, 3))
    return VAE(n_restarts=1, max_steps=3, hidden=(4,), random_state=0, verbose=0).fit(x)


def test_round_trip_of_every_kind_of_tensor(path):
    tensors = {
        "f64": torch.randn(3, 2, dtype=torch.float64),
        "i64": torch.arange(4),
        "bool": torch.tensor([True, False]),
        "bf16": torch.ones(2, dtype=torch.bfloat16),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
    }
    tensors["shared"] = tensors["f64"]
    header = {"number": 0.1, "none": None, "text": "ψ", "list": [1, [2.5, True]]}
    files.write(path, "note", header, tensors)
    back = files.read(path, "note")
    assert back.header == header
    assert back.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back.tensors[name].dtype == tensor.dtype
        assert torch.equal(back.tensors[name], tensor)


def test_a_failed_write_keeps_the_old_file_and_adds_no_other(path, monkeypatch):
    files.write(path, "note", {"version": 1}, {})

    def broken(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        files.write(path, "note", {"version": 2}, {"w": torch.ones(1000)})
    monkeypatch.undo()
    assert files.read(path, "note").header == {"version": 1}
    assert list(path.parent.iterdir()) == [path]


def test_a_flipped_bit_in_any_byte_is_detected(path):
    files.write(path, "note", {"a": 1}, {"w": torch.arange(5.0)})
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            back = files.read(path, "note")
        except DamagedFileError:
            continue
        # Other changes affect only white space or the order of the JSON header.
        assert back.header == {"a": 1}
        assert torch.equal(back.tensors["w"], torch.arange(5.0))


def test_every_truncation_is_detected(path):
    files.write(path, "note", {"a": 1}, {"w": torch.arange(5.0)})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFileError, match="not a readable"):
            files.read(path, "note")


@pytest.mark.parametrize(
    "content", [b"", b"col1,col2\n1,2\n", pickle.dumps({"a": 1}), struct.pack("<Q", 2**60) + b"{}"]
)
def test_foreign_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="not a readable"):
        load(path)


@pytest.mark.parametrize(("metadata", "word"), [(None, "did not write"), ({"format": "identifiable-9"}, "Upgrade")])
def test_safetensors_of_another_program_or_version_are_refused(path, metadata, word):
    save_file({"w": torch.ones(2)}, path, metadata=metadata)
    with pytest.raises(DamagedFileError, match=word):
        load(path)


def test_a_checkpoint_is_not_a_model(path):
    files.write(path, "checkpoint", {}, {})
    with pytest.raises(DamagedFileError, match="checkpoint"):
        load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no_such"):
        load(tmp_path / "no_such.safetensors")


def test_saving_to_a_missing_folder_is_refused(tmp_path, model):
    with pytest.raises(FileNotFoundError, match="folder"):
        save(model, tmp_path / "no" / "m.safetensors")


def test_a_written_file_has_the_usual_permissions(path, tmp_path):
    files.write(path, "note", {}, {})
    (tmp_path / "usual").write_text("")
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
