"""Save a fitted estimator to one file, and load it: numbers and text, no code.

The file is safetensors. Its header names the class, the constructor's parameters, the fitted attributes and the
versions that wrote it; its tensors are the arrays and the nets. `load` looks the class up among the estimators of this
library, builds it anew and fills in the numbers: nothing in the file is ever executed.
"""

import dataclasses
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import sklearn
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import identifiable
from identifiable import files
from identifiable.agreement.stability import Stability
from identifiable.algorithms.activity import Activity
from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.directions import Directions
from identifiable.algorithms.hyperplanes import Excess, Spans
from identifiable.auto.units import Pixels, Units
from identifiable.auto.verdict import Candidate, LatentReport
from identifiable.data.auxiliary import Auxiliary
from identifiable.distributions.conditional import ConditionalPrior
from identifiable.distributions.log_spline import LogSplines
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DamagedFileError
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.estimators.pdgmm.goodness import Goodness
from identifiable.estimators.sparse_unmixing import Masks
from identifiable.nets import ConvNet, Dense, ResNet
from identifiable.nets.grid import GridNet
from identifiable.theory.hyperplanes import SparsityBound
from identifiable.theory.independence import Correlations
from identifiable.theory.upsets import UpSets
from identifiable.training import History

_RESULTS: dict[str, Any] = {
    c.__name__: c
    for c in (
        *(
            Activity,
            Auxiliary,
            Candidate,
            ConditionalPrior,
            ConvNet,
            Coordinates,
            Correlations,
            Dense,
            Directions,
            Excess,
        ),
        *(Goodness, GridNet, History, LogSplines, Masks, Mixture, Pixels, ResNet, Spans, SparsityBound, Stability),
        *(LatentReport, Units, UpSets),
    )
}  # the small typed values an estimator may hold

# Names in files that version 0.1 wrote -> names today. `Auxiliary` has its own field `kinds`: fields of results are
# renamed only in the classes listed.
_PARAMETERS = {
    "alike": "common_scale",
    "free_steps": "full_covariance_steps",
    "groups": "n_groups",
    "kinds": "u_types",
    "long": "extended",
    "posterior_sees_u": "posterior_given_u",
    "start": "init",
}
_FITTED = {
    "expected_": "expected_mcc_",
    "law_": "conditional_prior_",
    "trained_long_": "trained_extended_",
    "tried_": "candidates_",
    "trust_": "latent_reports_",
}
_CLASSES = {"Tried": "Candidate", "Trust": "LatentReport"}
_FIELDS = {
    "LatentReport": {
        "again": "seed_agreement",
        "halves": "split_half_agreement",
        "rivals": "alternative_agreement",
        "rests": "inactive_share",
    }
}


def save(model: BaseEstimator, path: str | Path) -> None:
    """Write a fitted estimator to path (conventionally .safetensors), all or nothing.

    A `random_state` that is a generator object is not kept: it would only matter for another fit.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from identifiable import VAE, load, save
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> vae = VAE(n_restarts=1, max_steps=5, random_state=0, verbose=0).fit(x)
    >>> path = tempfile.mkdtemp() + "/vae.safetensors"
    >>> save(vae, path)
    >>> bool((load(path).transform(x) == vae.transform(x)).all())
    True
    """
    check_is_fitted(model)
    tensors: dict[str, Tensor] = {}
    header = _describe(model, "", tensors) | {"versions": versions()}
    files.write(path, "model", header, tensors)


def versions() -> dict[str, str]:
    """Return what a result depends on: this library, those it computes with, and Python."""
    return {
        "identifiable": identifiable.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }


def load(path: str | Path, *, device: str = "auto") -> Any:
    """Read an estimator that `save` wrote; refuse a damaged or foreign file."""
    contents = files.read(path, "model")
    header, tensors = contents.header, contents.tensors
    try:
        return _built(header, tensors, device)
    except _UnknownError as error:
        raise DamagedFileError(
            f"{str(path)!r} holds a {error}, which this version ({identifiable.__version__}) does not know. It was "
            f"written by version {header.get('versions', {}).get('identifiable')}; upgrade identifiable."
        ) from None


def rename_account(account: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a certificate.json with the keys of today; version 0.1 wrote others."""
    new = _FIELDS["LatentReport"]
    latents = [{new.get(k, k): v for k, v in latent.items()} for latent in account["latents"]]
    certificate = account["certificate"]
    data = {k.replace(" ", "_"): v for k, v in account["data"].items()}
    certificate = certificate and rename_certificate(certificate)
    renamed = account | {"latents": latents, "certificate": certificate, "data": data}
    if latents and "guaranteed" not in latents[0]:  # verdicts of version 0.1 did not depend on the certificate
        stable = any(latent["verdict"] == "stable" for latent in latents)
        old = {"identified": "reproducible", "doubtful": "partly reproducible" if stable else "not reproducible"}
        renamed["verdict"] = old.get(account["verdict"], "not reproducible")
    return renamed


def rename_certificate(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a written certificate in the words of today; version 0.1 wrote "at_best" and "cannot tell"."""
    renamed = {{"at_best": "if_undecided_hold"}.get(key, key): value for key, value in certificate.items()}
    checks = [dict(check) for check in certificate.get("checks") or []]
    for check in checks:
        if check.get("verdict") == "cannot tell":
            check["verdict"] = "inconclusive"
    return renamed | {"checks": checks}


class _UnknownError(Exception):
    """A class that is not among the estimators of this library."""


def _describe(model: BaseEstimator, key: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return class, parameters and fitted attributes as JSON; arrays and nets go to `tensors`."""
    parameters = model.get_params(deep=False)
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None
    fitted = {k: v for k, v in vars(model).items() if k.endswith("_") and not k.startswith("_")}
    return {
        "class": type(model).__name__,
        "parameters": {k: _encode(v, f"{key}parameters/{k}", tensors) for k, v in parameters.items()},
        "fitted": {k: _encode(v, f"{key}fitted/{k}", tensors) for k, v in fitted.items()},
        "output": getattr(model, "_sklearn_output_config", {}).get("transform"),
    }


def _built(header: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str) -> Any:
    """Build the estimator that `_describe` wrote down."""
    name = header.get("class")
    known = getattr(identifiable, name, None) if isinstance(name, str) and name in identifiable.__all__ else None
    if not (isinstance(known, type) and issubclass(known, BaseEstimator)):
        raise _UnknownError(repr(name))
    parameters = {_PARAMETERS.get(k, k): _decode(v, tensors, device) for k, v in header["parameters"].items()}
    if parameters.get("flow") == "bent":
        parameters["flow"] = "softplus"
    model: Any = known(**parameters)
    if "device" in parameters:
        model.device = device
    modules = {}
    for written, value in header["fitted"].items():
        attribute = _FITTED.get(written, written)
        if isinstance(value, dict) and "module" in value:
            modules[attribute] = value["module"]
        else:
            setattr(model, attribute, _decode(value, tensors, device))
    if hasattr(model, "vectors_"):
        _set_coordinates(model)
    for attribute, prefix in modules.items():  # last: building one needs the other attributes
        module = model._build(1)
        module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
        setattr(model, attribute, module.to(resolve_device(device)).eval())
    if header["output"] is not None:
        model.set_output(transform=header["output"])
    return model


def _set_coordinates(model: Any) -> None:
    """Join the attributes in which version 0.1 wrote the coordinates of a flow."""
    old, basis = vars(model), model.vectors_
    n = old.pop("columns_", None) or old.get("n_used_", basis.shape[1])
    variances = np.ones(basis.shape[1])
    if "sizes_" in old:  # GMMFlow has isotropic noise outside its principal subspace
        variances[:n] = old.pop("sizes_") ** 2
        if model.n_latents is not None:
            basis = np.c_[basis, scipy.linalg.null_space(basis.T)]
            variances = np.r_[variances, np.full(basis.shape[1] - n, old.pop("rest_scale_") ** 2)]
    elif "rest_map_" not in old:
        variances[n:] = old.pop("rest_scale_") ** 2
    model.coordinates_ = Coordinates(old.pop("mean_"), old.pop("scale_"), basis, variances, int(n))
    del model.vectors_


def _encode(value: Any, key: str, tensors: dict[str, Tensor]) -> Any:
    """Turn a value into JSON; arrays and nets go to `tensors` and are named in it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        items = [_encode(v, f"{key}/{i}", tensors) for i, v in enumerate(value)]
        return {"list": items} if isinstance(value, list) else items
    if isinstance(value, LatentModel):
        return {"estimator": _describe(value, f"{key}/", tensors)}
    if isinstance(value, Mapping):
        return {"words": {str(k): _encode(v, f"{key}/{k}", tensors) for k, v in value.items()}}
    if isinstance(value, nn.Module):
        tensors |= {f"{key}/{k}": v for k, v in value.state_dict().items()}
        return {"module": f"{key}/"}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT":
        return {"strings": [str(v) for v in value]}
    if isinstance(value, np.ndarray):
        tensors[key] = torch.from_numpy(np.ascontiguousarray(value))
        return {"array": key}
    if type(value).__name__ in _RESULTS:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"result": type(value).__name__, **{k: _encode(v, f"{key}/{k}", tensors) for k, v in fields.items()}}
    raise TypeError(f"Cannot save {key!r}: {type(value).__name__} is neither a number, a text, an array nor a result.")


def _decode(value: Any, tensors: Mapping[str, Tensor], device: str) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v, tensors, device) for v in value)
    if not isinstance(value, dict):
        return value
    if "list" in value:
        return [_decode(v, tensors, device) for v in value["list"]]
    if "estimator" in value:
        return _built(value["estimator"], tensors, device)
    if "array" in value:
        return tensors[value["array"]].numpy()
    if "strings" in value:
        return np.array(value["strings"], dtype=object)
    if "words" in value:
        return {k: _decode(v, tensors, device) for k, v in value["words"].items()}
    name = str(value["result"])
    name = _CLASSES.get(name, name)
    new = _FIELDS.get(name, {})
    fields = {new.get(str(k), str(k)): _decode(v, tensors, device) for k, v in value.items() if k != "result"}
    return _RESULTS[name](**fields)
