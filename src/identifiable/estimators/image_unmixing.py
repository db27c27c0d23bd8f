r"""Latents of images: an encoder finds a code, and an unmixing of the code finds the latents.

    x = f(z)  ->  code = encode(x)  ->  latents = unmix(code)

This is the order of Xu et al. (2026), section 5.2: their encoder is a convolutional net, here it is an autoencoder of
keypoints (:class:`KeypointEncoder`) or any estimator that maps images to a code and back. The encoder has to keep what
the latents determine, up to an invertible map that the unmixing undoes: an affine map for `SparseUnmixing`, a piecewise
affine one for `PDGMM` and `TwoStage`. Coordinates that are always active together, as x and y of one thing, are blocks.

An unmixing fixes the axes only where latents are inactive, and in a block not even there. Keypoints have axes, x and
y of the image. So the code itself is returned if the unmixing allows it, that is if it shows no inactivity,
or if every group of latents that are inactive together spans coordinates of the code (`match_axes`).
"""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from identifiable.agreement.stability import most_agreeing
from identifiable.algorithms.code_axes import match_axes
from identifiable.arrays import BoolArray, FloatArray, IntArray, hold_out
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.base import LatentModel
from identifiable.estimators.keypoints import KeypointEncoder
from identifiable.estimators.sparse_unmixing import SparseUnmixing
from identifiable.theory import Certificate
from identifiable.theory.certificate import Finding

BY_ARCHITECTURE = (
    "No theorem is used. The latents have a meaning because of the architecture: the decoder can only move sprites "
    "over a background, so each pair of latents is the position of a sprite"
)


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
    groups_ : (n,) if the latents are the keypoints themselves: the group of latents of `unmixing_` that shows when a
        coordinate is inactive, -1 if none does. None if the latents are those of `unmixing_`.
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
    groups_: IntArray | None = field(init=False)

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
        return self.unmix([self._encoder(seed + r).fit(X) for r in range(self.n_restarts)], X)

    def unmix(self, encoders: Sequence[Any], X: ArrayLike) -> Self:
        """Unmix the codes of encoders, one per restart, that are fitted to images X."""
        X, seed = np.asarray(X), self._seed()
        train, held = hold_out(len(X), seed)
        fits, latents = [], []
        for r, encoder in enumerate(encoders):
            code = np.asarray(encoder.transform(X), dtype=np.float64)
            unmixing = self._unmixing(seed + r)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RecoveryWarning)  # no code is exactly affine
                unmixing.fit(code[train])
            groups = _groups_of_keypoints(encoder, unmixing, code)
            fits.append((encoder, unmixing, groups))
            latents.append(code[held] if groups is not None else np.asarray(unmixing.transform(code[held])))
        widths = {z.shape[1] for z in latents}
        if len(widths) > 1:
            raise DataError(
                f"The restarts found different numbers of latents: {sorted(widths)}. Give n_latents, or use more steps."
            )
        self._compare_restarts(np.stack(latents))
        kept = most_agreeing(self.stability_.agreement, np.array([fit[0].score(X[held]) for fit in fits]))
        self.encoder_, self.unmixing_, self.groups_ = fits[kept]
        self.n_features_in_ = int(np.prod(X.shape[1:]))
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents) of images X."""
        check_is_fitted(self)
        code = np.asarray(self.encoder_.transform(X), dtype=np.float64)
        return code if self.groups_ is not None else np.asarray(self.unmixing_.transform(code))

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the images of latents Z (N, n_latents)."""
        Z = self._check_latents(Z)
        return np.asarray(
            self.encoder_.inverse_transform(Z if self.groups_ is not None else self.unmixing_.inverse_transform(Z))
        )

    def active(self, X: ArrayLike) -> BoolArray:
        """Return which latents are active in each image, (N, n_latents). Those never shown to be inactive are active.

        It needs an unmixing with `active`, such as `SparseUnmixing`.
        """
        check_is_fitted(self)
        active = np.asarray(self.unmixing_.active(np.asarray(self.encoder_.transform(X), dtype=np.float64)))
        if self.groups_ is None:
            return active
        shown = np.ones_like(active)
        for k, group in enumerate(_shown_groups(self.unmixing_)):
            shown[:, self.groups_ == k] = active[:, list(group)].any(1, keepdims=True)
        return shown

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the score of the encoder."""
        check_is_fitted(self)
        return float(self.encoder_.score(X))

    @property
    def blocks_(self) -> tuple[Any, ...]:
        """Groups of latents that are always active together, so that only the group is identified."""
        check_is_fitted(self)
        if self.groups_ is None:
            return tuple(getattr(self.unmixing_, "blocks_", ()))
        groups = [np.flatnonzero(self.groups_ == k).tolist() for k in range(self.groups_.max() + 1)]
        return tuple(tuple(group) for group in groups if len(group) > 1)

    @property
    def meanings_(self) -> tuple[str, ...]:
        """What each latent is by the architecture; "" for the latents of an unmixing, which are not keypoints."""
        if self.groups_ is None:
            return ("",) * self.n_latents_
        return tuple(f"{'xy'[i % 2]} of thing {i // 2 + 1}" for i in range(self.n_latents_))

    @property
    def certificate_(self) -> Certificate:
        """The certificate of the unmixing; nothing is shown without an injective encoder, which no data can show.

        If the latents are the keypoints themselves, no theorem stands behind them, whatever holds: `meaning` says so.
        """
        check_is_fitted(self)
        found: Certificate = self.unmixing_.certificate_
        sentence = "No data can show that two different images never have the same code."
        injective = Finding("inconclusive", sentence).check("encoder", "the code determines the image")
        if self.groups_ is not None:
            return replace(Certificate.nothing(*found.checks, injective), meaning=BY_ARCHITECTURE)
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


def _groups_of_keypoints(encoder: Any, unmixing: Any, code: FloatArray) -> IntArray | None:
    """Return the groups of keypoint coordinates (n,) if the unmixing allows their axes; else None."""
    if not (isinstance(encoder, KeypointEncoder) and isinstance(unmixing, SparseUnmixing)):
        return None
    return match_axes(code, np.asarray(unmixing.transform(code)), _shown_groups(unmixing))


def _shown_groups(unmixing: SparseUnmixing) -> list[tuple[int, ...]]:
    """Return the latents whose inactivity is shown: those of blocks, by its pattern, and established single ones."""
    blocks = [tuple(block) for block in unmixing.blocks_]
    in_blocks = {i for block in blocks for i in block}
    return [*blocks, *((int(i),) for i in np.flatnonzero(unmixing.established_) if i not in in_blocks)]
