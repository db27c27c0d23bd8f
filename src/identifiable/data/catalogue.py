"""All data sources in one list: description, shape, origin, licence."""

from dataclasses import dataclass

from identifiable.data.real import DOWNLOADS


@dataclass(frozen=True)
class Source:
    """One line of the catalogue; `loader` is the function of `identifiable.data` that returns the `Sample`."""

    name: str
    what: str
    rows: int | None
    columns: int | None
    origin: str
    licence: str
    loader: str


_OURS = "simulated here"
_PUBLISHED = {key.partition("/")[0]: folder for key, (folder, _) in reversed(DOWNLOADS.items())}  # of its first file

# In the order of Source's fields; None: chosen by the caller.
SOURCES: tuple[Source, ...] = (
    Source("pdgmm", "intermittently active latents; piecewise affine mixing", None, None, _OURS, "–", "make_pdgmm"),
    Source("segments", "Gaussian sources, scale given by u; smooth mixing", None, None, _OURS, "–", "make_segments"),
    Source("tcl", "Gaussian sources, mean and scale given by u", None, None, _OURS, "–", "make_tcl"),
    Source("gmm", "mixture of full-rank Gaussians, hidden clusters", None, None, _OURS, "–", "make_gmm"),
    Source("pinwheel", "curved clusters in the plane", None, 2, _OURS, "–", "make_pinwheel"),
    Source("parallelograms", "uniform clusters in the plane", None, None, _OURS, "–", "make_parallelograms"),
    Source("balls", "coloured balls, 64 x 64 x 3", None, 12_288, _OURS, "–", "make_balls"),
    Source("digits", "handwritten digits, 8 x 8", 1797, 64, "UCI, in scikit-learn", "CC BY 4.0", "load_digits"),
    Source("mnist", "handwritten digits, 28 x 28", 70_000, 784, _PUBLISHED["mnist"], "CC BY-SA 3.0", "load_mnist"),
    Source("fashion_mnist", "clothing, 28 x 28", 70_000, 784, _PUBLISHED["fashion_mnist"], "MIT", "load_fashion_mnist"),
    Source("cifar10", "photographs, 32 x 32 x 3", 60_000, 3072, _PUBLISHED["cifar10"], "none stated", "load_cifar10"),
    Source(
        "svhn", "house numbers, 32 x 32 x 3", 99_289, 3072, _PUBLISHED["svhn"], "non-commercial use only", "load_svhn"
    ),
    Source("sachs", "proteins in cells, 9 conditions", 7466, 11, _PUBLISHED["sachs"], "CC0", "load_sachs"),
)


def catalogue() -> tuple[Source, ...]:
    """Return what is known about each source.

    Examples
    --------
    >>> [source.name for source in catalogue() if source.rows is not None]
    ['digits', 'mnist', 'fashion_mnist', 'cifar10', 'svhn', 'sachs']
    """
    return SOURCES
