"""The parts of a page that show images."""

import numpy as np
import pytest

from fake_fit import account
from identifiable import DamagedFileError
from identifiable.report.fit_page import fit_page
from identifiable.report.fit_report import FitReport
from identifiable.report.image_page import Pictures, traversals_section
from page_reader import Reader


def pictures(n, shape=(4, 5)):
    values = np.random.default_rng(0).random((n + 2, 9, *shape))
    return Pictures(values[0], values[1], values[2:], np.array([[0.125, 0.875]] * n), np.empty(0))


def of_things(*shares):
    found = account(["stable"] * len(shares), "reproducible")
    for i, share in enumerate(shares):
        meaning = f"{'xy'[i % 2]} of thing {i // 2 + 1}"
        found["latents"][i] |= {"inactive_share": share, "meaning": meaning, "columns": {}}
    return found


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)])
def test_pictures_survive_a_file(tmp_path, shape):
    made = pictures(2, shape)
    made.write(tmp_path / "p.npz")
    read = Pictures.read(tmp_path / "p.npz")
    np.testing.assert_array_equal(read.ends, made.ends)
    for name in ("examples", "painted", "along"):
        np.testing.assert_allclose(getattr(read, name), getattr(made, name), atol=0.5 / 255)


@pytest.mark.parametrize("contents", [b"nothing", b""])
def test_a_file_without_pictures_is_refused(tmp_path, contents):
    (tmp_path / "p.npz").write_bytes(contents)
    with pytest.raises(DamagedFileError):
        Pictures.read(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", ends=np.zeros(2))
    with pytest.raises(DamagedFileError):
        Pictures.read(tmp_path / "p.npz")


def test_every_thing_is_named_with_its_inactivity():
    section = traversals_section(FitReport.from_dict(of_things(0.1, 0.1, 0.0, 0.0)), pictures(4))
    words = Reader(section.body).words
    assert "Thing 1 inactive in 10 % of the images z0: x" in words
    assert "Thing 2 no inactivity was found z2: x" in words
    assert section.body.count("data:image/png;base64,") == 4
    assert section.body.count("<svg") == 4
    assert words.count("0.12") == words.count("0.88") == 4  # the ends of each row


def test_latents_of_an_unmixing_are_shown_by_block():
    found = of_things(0.25, 0.0, 0.25)
    for i, latent in enumerate(found["latents"]):
        latent |= {"meaning": "", "block": [1] if i == 1 else [0, 2]}
    section = traversals_section(FitReport.from_dict(found), pictures(3))
    words = Reader(section.body).words
    assert "Known only together: z0, z2 inactive in 25 % of the images z0 stable" in words
    assert words.index("z2 stable") < words.index("Latent z1 no inactivity was found")
    assert "downwards" not in section.lead


def test_positions_replace_effects_and_say_where_their_meaning_is_from():
    found = of_things(0.0, 0.0)
    found["data"]["picture"] = [4, 5]
    page = fit_page(FitReport.from_dict(found), "dots", pictures(2))
    assert page.title == "Both latents are reproducible"
    assert [s.anchor for s in page.sections][1] == "examples"
    html = page.html()
    assert "as x of thing 1, by the architecture" in html
    assert "up to sign, scale and shift" not in html
    assert "Effect of z0" not in html
