"""`certify` chooses the theorem by the kind of model, and returns the certificate of fitted estimators."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from identifiable import ConditionalPrior, Mixture, PrincipalComponents, SparseUnmixing, certify
from identifiable.data import make_pdgmm
from identifiable.errors import DataError
from identifiable.theory import Certificate, Decoder, Level
from theory.decoder_examples import IDENTITY, RELU, random_net

LINES = Mixture([0.5, 0.5], [[3, 0], [1, 4]], [[1, 0], [0, 1]])
PLANES = Mixture([0.5, 0.5], [[3, 0], [1, 4]], [[1, 2], [2, 1]])
PRIOR = ConditionalPrior("mean", [[0, 0], [2, 0], [0, 3]], [[1, 1], [1, 1], [1, 1]])


class Estimator(BaseEstimator):
    """An estimator whose certificate is an attribute."""

    def fit(self, certificate):
        self.certificate_ = certificate
        return self


@pytest.mark.parametrize(("model", "paper"), [(LINES, "Xu"), (PLANES, "Kivva"), (PRIOR, "Khemakhem")])
def test_the_kind_of_distribution_chooses_the_paper(model, paper):
    observation = {"observation": "none"} if model is PRIOR else {}
    assert paper in certify(model, injective=True, **observation).theorem


def test_a_fitted_estimator_returns_its_certificate():
    sample = make_pdgmm(2000, n=3, layers=1, random_state=0)
    model = SparseUnmixing(3, n_restarts=1, random_state=0, verbose=0).fit(sample.x)
    found = certify(model)
    assert isinstance(found, Certificate)
    assert found.to_dict() == model.certificate_.to_dict()
    certificate = certify(LINES)
    assert certify(Estimator().fit(certificate)) is certificate


@pytest.mark.parametrize("model", [SparseUnmixing(3), PrincipalComponents(2), Estimator()])
def test_an_unfitted_estimator_is_refused(model):
    with pytest.raises(NotFittedError, match="fit"):
        certify(model)


@pytest.mark.parametrize(
    "model", [PrincipalComponents(2).fit(np.random.default_rng(0).normal(size=(50, 3))), Estimator().fit(None), 3]
)
def test_a_model_without_certificate_is_refused(model):
    with pytest.raises(TypeError, match=type(model).__name__):
        certify(model)


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        (LINES, {"observation": "none"}),
        (PRIOR, {"affine": True}),
        (PRIOR, {"decoder": Decoder.from_layers([IDENTITY])}),
        (PRIOR, {"rows": 10}),
        (Estimator().fit(certify(LINES)), {"injective": False}),
        (Estimator().fit(certify(LINES)), {"estimated": True}),
        (Estimator().fit(certify(LINES)), {"rows": 10}),
    ],
)
def test_arguments_for_other_models_are_refused(model, arguments):
    with pytest.raises(DataError, match=next(iter(arguments))):
        certify(model, **arguments)


def test_a_decoder_of_singular_components_decides_on_the_mixing():
    mixture = make_pdgmm(10, n=4, random_state=0).source.latents.mixture()
    rng = np.random.default_rng(0)
    for decoder, verdict, level in (
        (random_net((4, 5, 6), rng, 0.2), "holds", Level.PS),
        (random_net((4, 5, 6), rng, RELU), "fails", Level.NONE),
        (random_net((4, 32, 32, 40), rng, RELU), "inconclusive", Level.NONE),
    ):
        certificate = certify(mixture, decoder=decoder)
        assert certificate["mixing"].verdict == verdict
        assert certificate.level == level
        assert certificate["straight"].verdict == "holds"


def test_rows_make_a_mixture_an_estimate():
    assert certify(LINES, rows=100).estimated
    assert certify(PLANES, rows=100).estimated
    assert not certify(LINES).estimated
