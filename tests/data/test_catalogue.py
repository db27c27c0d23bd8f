"""The catalogue lists every source."""

from identifiable import data
from identifiable.data.catalogue import catalogue


def test_every_source_has_a_loader_a_licence_and_its_shape():
    for source in catalogue():
        assert source.loader in data.__all__
        assert callable(getattr(data, source.loader))
        assert source.licence
        assert source.loader.startswith("make_" if source.rows is None else "load_")
    loaders = {name for name in data.__all__ if name.startswith(("make_", "load_"))}
    assert loaders == {source.loader for source in catalogue()}
    digits, row = data.load_digits(), next(s for s in catalogue() if s.name == "digits")
    assert digits.x.shape == (row.rows, row.columns)
