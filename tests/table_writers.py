"""Writers of small tables in every format, and two tables."""

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, settings

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def bits(x):
    """Return all that two equal arrays share."""
    return x.dtype, x.shape, np.ascontiguousarray(x).tobytes()


def write_csv(frame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


def write_parquet(frame, path, **options):
    frame.to_parquet(path, **options)
    return path


def write_npy(x, path, **options):
    np.save(path, x, **options)
    return path


def write_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def write_text(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


FRAME_WRITERS = {
    "frame": lambda frame, folder: frame,
    "csv": lambda frame, folder: write_csv(frame, folder / "t.csv"),
    "csv with an index": lambda frame, folder: frame.to_csv(folder / "i.csv") or folder / "i.csv",
    "csv with a BOM": lambda frame, folder: write_csv(frame, folder / "b.csv", encoding="utf-8-sig"),
    "CSV of semicolons": lambda frame, folder: write_csv(frame, folder / "t.CSV", sep=";"),
    "csv of tabs": lambda frame, folder: write_csv(frame, folder / "tabs.csv", sep="\t"),
    "tsv": lambda frame, folder: write_csv(frame, folder / "t.tsv", sep="\t"),
    "parquet": lambda frame, folder: write_parquet(frame, folder / "t.parquet"),
    "parquet with an index": lambda frame, folder: write_parquet(
        frame.set_axis([f"r{i}" for i in range(len(frame))]), folder / "i.parquet"
    ),
}

ARRAY_WRITERS = {
    "array": lambda x, folder: x,
    "list": lambda x, folder: x.tolist(),
    "npy": lambda x, folder: write_npy(x, folder / "t.npy"),
    "npy in Fortran order": lambda x, folder: write_npy(np.asfortranarray(x), folder / "f.npy"),
    "npy of big-endian": lambda x, folder: write_npy(x.astype(">f8"), folder / "be.npy"),
    "npz": lambda x, folder: write_npz(folder / "t.npz", x=x),
    "npz with labels": lambda x, folder: write_npz(folder / "l.npz", x=x, label=np.arange(len(x))),
}

MIXED = pd.DataFrame({"a": [1.0, 2.0, 3.0], "site": ["p", "q", "p"], "b": [4, 5, 6], "day": [7, 8, 9]})

NUMBERS = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0) ** 2})
