"""Files of tensors and text: safetensors with a JSON header, a checksum, and an atomic write.

Models and checkpoints use this format. Reading executes nothing from the file: tensors come from safetensors, the
header from JSON, and a SHA-256 checksum of both is compared before anything is returned.
"""

import base64
import hashlib
import io
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from identifiable.errors import DamagedFileError

FORMAT = "identifiable-1"


@dataclass(frozen=True)
class Contents:
    """The contents of a file: a JSON tree and named tensors."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]


def _digest(kind: str, header: str, tensors: Mapping[str, Tensor]) -> str:
    h = hashlib.sha256(f"{FORMAT}\0{kind}\0{header}".encode())
    for name in sorted(tensors):
        t = tensors[name]
        h.update(f"\0{name}\0{t.dtype}\0{tuple(t.shape)}\0".encode())
        h.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return h.hexdigest()


def write(path: str | Path, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write header and tensors to path, all or nothing (see `write_bytes`).

    Examples
    --------
    >>> import tempfile, torch
    >>> path = tempfile.mkdtemp() + "/a.safetensors"
    >>> write(path, "note", {"mean": 0.5}, {"w": torch.ones(2)})
    >>> read(path, "note").header
    {'mean': 0.5}
    """
    path = Path(path)
    require_folder(path)
    text = json.dumps(header)
    # Copies, because safetensors refuses tensors that share memory.
    plain = {k: t.detach().cpu().clone(memory_format=torch.contiguous_format) for k, t in tensors.items()}
    metadata = {"format": FORMAT, "kind": kind, "header": text, "sha256": _digest(kind, text, plain)}
    write_bytes(path, save(plain, metadata))


def write_bytes(path: Path, content: bytes) -> None:
    """Write any content to path, all or nothing.

    The bytes go to a temporary file beside `path`, are flushed to disk and then renamed over it: a crash at any moment
    leaves either the old file or the new one.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with temporary.open("xb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def png(pixels: NDArray[np.floating[Any]]) -> str:
    """Return pixels (height, width) or (height, width, 3), from 0 to 255, as a PNG in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.round().astype(np.uint8)).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def require_folder(path: Path) -> None:
    """Refuse a path whose folder does not exist, before work starts whose result could not be written."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot write {str(path)!r}: the folder {str(path.parent)!r} does not exist. Create it."
        )


def read(path: str | Path, kind: str) -> Contents:
    """Read a file that `write` wrote; raise `DamagedFileError` for any other file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"No file {str(path)!r}. Expected a {kind} file written by identifiable.")
    try:
        with safe_open(path, framework="pt") as f:
            metadata = f.metadata() or {}
            tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFileError(
            f"{str(path)!r} is not a readable safetensors file ({error}). It is truncated, altered or of another "
            f"kind; restore it from a copy or write it again."
        ) from None
    if not str(metadata.get("format", "")).startswith("identifiable-"):
        raise DamagedFileError(
            f"{str(path)!r} is a safetensors file, but identifiable did not write it. Expected a {kind} file."
        )
    if metadata["format"] != FORMAT:
        raise DamagedFileError(
            f"{str(path)!r} has format {metadata['format']!r}; this version reads {FORMAT!r}. Upgrade identifiable."
        )
    if metadata.get("kind") != kind:
        raise DamagedFileError(f"Expected a {kind} file, but {str(path)!r} holds a {metadata.get('kind')!r}.")
    text = metadata.get("header", "")
    if metadata.get("sha256") != _digest(kind, text, tensors):
        raise DamagedFileError(
            f"{str(path)!r} was altered after it was written: its checksum does not match. Restore it from a copy."
        )
    return Contents(json.loads(text), tensors)
