r"""Latents of images: an encoder finds a code, and an unmixing of the code finds the latents.

    x = f(z)  ->  code = encode(x)  ->  latents = unmix(code)

This is the order of Xu et al. (2026), section 5.2: their encoder is a convolutional net, here it is an autoencoder of
keypoints (:class:`KeypointEncoder`) or any estimator that maps images to a code and back. The encoder has to keep what
the latents determine, up to an invertible map that the unmixing undoes: an affine map for `SparseUnmixing`, a piecewise
affine one for `PDGMM` and `TwoStage`. Coordinates that are always active together, as x and y of one thing, are blocks.
"""

import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from identifiable.agreement.stability import most_agreeing
from identifiable.arrays import FloatArray, hold_out
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.base import LatentModel
from identifiable.estimators.keypoints import KeypointEncoder
from identifiable.estimators.sparse_unmixing import SparseUnmixing
from identifiable.theory import Certificate
from identifiable.theory.certificate import Finding


@dataclass(eq=False, repr=False)
class ImageUnmixing(LatentModel):
    """Find the latents of images in which things move and are intermittently inactive.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents; two for each thing. None finds it.
    n_restarts : int, default=1. Encoders, each with its own unmixing. Their agreement is `stability_`, and the one that
        agrees most with the others is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    encoder : "keypoints" or an estimator, default="keypoints". "keypoints" is `KeypointEncoder`. An estimator is given
        the images, its `transform` has to return the code, and its `inverse_transform` images.
    unmixing : estimator or None, default=None. What is fitted to the code. None is `SparseUnmixing`.
    image_shape : (height, width[, channels]) of the rows of X. Not needed where X has images (N, height, width[, c]).

    Attributes
    ----------
    encoder_, unmixing_ : the fitted estimators.
    n_latents_ : number of latents.
    blocks_ : groups of latents that are always active together, such as x and y of one thing.
    certificate_ : `Certificate` of the unmixing, if the encoder is injective.
    stability_, fit_status_ : agreement between restarts.

    Examples
    --------
    >>> from identifiable.data import make_balls
    >>> x = make_balls(200, balls=1, random_state=0).x.reshape(-1, 64, 64, 3)
    >>> encoder = KeypointEncoder(2, max_steps=10, verbose=0)
    >>> model = ImageUnmixing(encoder=encoder, random_state=0).fit(x)
    >>> model.transform(x).shape, model.inverse_transform(model.transform(x)).shape
    ((200, 2), (200, 64, 64, 3))

    References
    ----------
    Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models with piecewise affine
    mixing, AISTATS 2026, section 5.2 and appendix D.10. The keypoints are ours.
    """

    n_latents: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    n_restarts: int = 1
    encoder: str | BaseEstimator = "keypoints"
    unmixing: BaseEstimator | None = None
    image_shape: tuple[int, ...] | None = None

    encoder_: Any = field(init=False)
    unmixing_: Any = field(init=False)

    @property
    def _n_features_out(self) -> int:
        return self.n_latents_

    @property
    def n_latents_(self) -> int:
        """Number of latents."""
        check_is_fitted(self, "unmixing_")
        return int(self.unmixing_._n_features_out)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit encoders to images X (N, height, width[, channels]), and unmix their codes. y is ignored."""
        self._check_parameters()
        X, seed = np.asarray(X), self._seed()
        pairs, latents = [], []
        for r in range(self.n_restarts):
            encoder = self._encoder(seed + r).fit(X)
            code = np.asarray(encoder.transform(X), dtype=np.float64)
            train, held = hold_out(len(code), seed)
            unmixing = self._unmixing(seed + r)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RecoveryWarning)  # no code is exactly affine
                unmixing.fit(code[train])
            pairs.append((encoder, unmixing))
            latents.append(np.asarray(unmixing.transform(code[held])))
        widths = {z.shape[1] for z in latents}
        if len(widths) > 1:
            raise DataError(
                f"The restarts found different numbers of latents: {sorted(widths)}. Give n_latents, or use more steps."
            )
        self._compare_restarts(np.stack(latents))
        kept = most_agreeing(self.stability_.agreement, np.array([p[0].score(X[held]) for p in pairs]))
        self.encoder_, self.unmixing_ = pairs[kept]
        self.n_features_in_ = int(np.prod(X.shape[1:]))
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents) of images X."""
        check_is_fitted(self)
        return np.asarray(self.unmixing_.transform(np.asarray(self.encoder_.transform(X), dtype=np.float64)))

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the images of latents Z (N, n_latents)."""
        return np.asarray(self.encoder_.inverse_transform(self.unmixing_.inverse_transform(self._check_latents(Z))))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the score of the encoder."""
        check_is_fitted(self)
        return float(self.encoder_.score(X))

    @property
    def blocks_(self) -> tuple[Any, ...]:
        """Groups of latents that are always active together, so that only the group is identified."""
        check_is_fitted(self)
        return tuple(getattr(self.unmixing_, "blocks_", ()))

    @property
    def certificate_(self) -> Certificate:
        """The certificate of the unmixing; nothing is shown without an injective encoder, which no data can show."""
        check_is_fitted(self)
        found: Certificate = self.unmixing_.certificate_
        sentence = "No data can show that two different images never have the same code."
        injective = Finding("inconclusive", sentence).check("encoder", "the code determines the image")
        hold = max(found.level, found.if_undecided_hold)
        return Certificate.nothing(*found.checks, injective, if_undecided_hold=hold)

    def _encoder(self, seed: int) -> Any:
        """Return an unfitted encoder."""
        if not isinstance(self.encoder, str):
            return _seeded(self.encoder, seed)
        encoder = KeypointEncoder(self.n_latents, image_shape=self.image_shape, device=self.device)
        return encoder.set_params(random_state=seed, verbose=self.verbose)

    def _unmixing(self, seed: int) -> Any:
        """Return an unfitted unmixing of the code."""
        if self.unmixing is None:
            return SparseUnmixing(self.n_latents, random_state=seed, verbose=0)
        return _seeded(self.unmixing, seed)

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        encodes = self.encoder == "keypoints" or hasattr(self.encoder, "transform")
        self._require("encoder", encodes, "'keypoints' or an estimator with transform")
        self._require("unmixing", self.unmixing is None or hasattr(self.unmixing, "transform"), "an estimator or None")


def _seeded(estimator: BaseEstimator, seed: int) -> Any:
    """Return an unfitted copy with this seed, where it has one."""
    copied = clone(estimator)
    return copied.set_params(random_state=seed) if "random_state" in copied.get_params(deep=False) else copied
