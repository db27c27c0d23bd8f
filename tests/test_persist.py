"""Models are saved as numbers and text, and loaded again, also from files that version 0.1 wrote."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from identifiable import MFCVAE, VAE, DamagedFileError, GMMFlow, RelaxedVQVAE, files, load, save
from identifiable.nets.grid import GridNet
from identifiable.persist import rename_account, rename_certificate

OLD = Path(__file__).parent / "fixtures" / "v0.1"
OLD_SCORES = {  # mean of the first 50 rows, with version 0.1
    **{"BetaTCVAE": -2.995838, "FactorialUnmixing": -2.359389, "GMMFlow": -2.445557, "IFlow": -2.819446},
    **{"IVAE": -3.593201, "Identify": 1.170583, "IndependentComponents": -2.821647, "MFCVAE": -8.838725},
    **{"PDGMM": -2.766840, "RademacherVAE": -4.521631, "RelaxedVQVAE": -2.881276, "SegmentUnmixing": -2.906708},
    **{"SparseUnmixing": 1.170583, "TwoStage": -2.959624, "VaDE": -2.281185},
}
X = np.random.default_rng(0).normal(size=(50, 16))
QUICK = {"n_restarts": 1, "max_steps": 3, "random_state": 0, "verbose": 0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", sorted(file.stem for file in OLD.glob("*.safetensors")))
def test_old_model_files_give_the_same_latents_and_scores(name):
    expected, model = np.load(OLD / "expected.npz"), load(OLD / f"{name}.safetensors")
    x = expected["x_sparse" if name in ("Identify", "SparseUnmixing") else "x"]
    np.testing.assert_allclose(model.transform(x), expected[name], rtol=1e-5, atol=1e-5)
    assert model.score_samples(x)[:50].mean() == pytest.approx(OLD_SCORES[name], abs=1e-4)


def test_old_words_of_accounts_and_certificates_are_renamed():
    certificate = {"at_best": "PS", "checks": [{"verdict": "cannot tell"}, {"verdict": "fails"}]}
    renamed = {"if_undecided_hold": "PS", "checks": [{"verdict": "inconclusive"}, {"verdict": "fails"}]}
    assert rename_certificate(certificate) == renamed
    latent = {"name": "z0", "verdict": "stable"}
    old = {"latents": [latent | {"again": 0.9}], "certificate": certificate, "data": {"rows used": 3}}
    new = {"latents": [latent | {"seed_agreement": 0.9}], "certificate": renamed, "data": {"rows_used": 3}}
    for word, now in (("identified", "reproducible"), ("doubtful", "partly reproducible")):
        assert rename_account(old | {"verdict": word}) == new | {"verdict": now}
    assert rename_account(old | {"verdict": "", "certificate": None})["certificate"] is None


@pytest.mark.parametrize(
    "model",
    [
        VAE(hidden=[8, 4], **QUICK),
        VAE(hidden=(8,), checkpoint=None, **QUICK | {"random_state": None}),
        RelaxedVQVAE(net=GridNet((4, 4), width=4), n_codes=4, **QUICK),
        GMMFlow(2, depth=2, full_covariance_steps=0, n_components=2, **QUICK),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_come_out_as_they_were_saved(model, path):
    """Lists stay lists and tuples tuples; architectures and the format of the output are kept."""
    model.set_output(transform="pandas").fit(X)
    save(model, path)
    again = load(path, device="cpu")
    assert again.transform(X).equals(model.transform(X))
    assert again.get_params() == model.get_params() | {"device": "cpu"}
    np.testing.assert_array_equal(again.stability_.pairwise, model.stability_.pairwise)
    assert again.history_.loss.dtype == model.history_.loss.dtype
    save(again, path)
    assert load(path).transform(X).equals(model.transform(X))


def test_directions_are_saved_and_absent_in_old_files(path):
    model = MFCVAE(3, 2, pretrain_steps=3, **QUICK).fit(X)
    save(model, path)
    assert repr(load(path).directions_) == repr(model.directions_)
    assert load(OLD / "MFCVAE.safetensors").directions_ is None


def test_the_header_names_class_and_versions_and_holds_no_generator(path):
    save(VAE(**QUICK | {"random_state": np.random.RandomState(0)}).fit(X), path)
    header = files.read(path, "model").header
    assert header["class"] == "VAE"
    assert set(header["versions"]) == {"identifiable", "torch", "numpy", "scikit-learn", "python"}
    json.dumps(header)
    assert load(path).random_state is None


def test_values_that_cannot_be_written_are_named(path):
    model = VAE(**QUICK).fit(X)
    model.extra_ = object()
    with pytest.raises(TypeError, match="extra_"):
        save(model, path)
    assert not path.exists()


def test_an_unfitted_model_is_not_saved(path):
    with pytest.raises(NotFittedError):
        save(VAE(), path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["os", "LatentModel", "Plan", "__builtins__", "VAE.fit", None])
def test_only_estimators_of_the_library_are_built(path, name):
    """A well-formed file cannot name any other class."""
    files.write(path, "model", {"class": name, "parameters": {}, "fitted": {}, "output": None, "versions": {}}, {})
    with pytest.raises(DamagedFileError, match="upgrade"):
        load(path)
