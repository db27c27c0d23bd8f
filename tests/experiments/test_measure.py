"""Measurements of single runs, with methods and data sets that are known to give a certain result."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from identifiable import PrincipalComponents
from identifiable.data import Sample
from identifiable.experiments import measure as measures
from identifiable.experiments.measure import DataRequest, best_device, fit, make_data, measure
from identifiable.experiments.papers import find
from identifiable.experiments.recipe import BASELINES, FIRST_SEED, NET, Method, Run
from identifiable.metrics import mcc, r2


def run(experiment="recovery", method="PCA", how=None, seed=0, **values):
    values = {"law": "pdgmm", "n": 3, "layers": 1, "rows": 400, "new_rows": 300} | values
    return Run("a", "full", experiment, "s", values, method, how or BASELINES[method], seed)


class TrueLatents(PrincipalComponents):
    """A method that knows the mixing."""

    def fit(self, X, y=None):
        self.source = X
        return super().fit(X.sample(500, random_state=5).x)

    def transform(self, X):
        return self.source.mixing.inverse(torch.as_tensor(np.asarray(X))).numpy()


@pytest.fixture
def oracle(monkeypatch):
    monkeypatch.setattr("identifiable.TrueLatents", TrueLatents, raising=False)
    return Method("TrueLatents", fresh=True)


def test_values_are_split_into_request_and_parameters_of_the_simulator():
    request = DataRequest.of(run(latents=4, directions=2, rho="1 var"))
    assert (request.law, request.rows, request.latents, request.directions) == ("pdgmm", 400, 4, 2)
    assert request.simulator == {"n": 3, "layers": 1, "rho": "1 var"}


def test_new_rows_are_not_among_the_fitted_ones():
    sample, new = make_data(run())
    assert (len(sample), len(new)) == (400, 300)
    assert not set(sample.x[:, 0]) & set(new.x[:, 0])
    again, _ = make_data(run())
    np.testing.assert_array_equal(sample.x, again.x)
    by_segment = replace(run(), values={"law": "tcl", "n": 2, "segments": 4, "segment_rows": 30})
    assert len(make_data(by_segment)[0]) == 120
    first, second = (make_data(run(draw=i))[0].x for i in (1, 2))
    assert not np.array_equal(first, second)


def test_recovery_of_the_truth_is_exact(oracle):
    found = measure(run(method="oracle", how=oracle), "cpu")
    assert found.metrics["mcc"] == pytest.approx(1)
    assert found.metrics["r2"] == pytest.approx(1)
    np.testing.assert_allclose(np.diag(found.arrays["correlation"]), 1)
    rotated = measure(run(method="oracle", how=oracle, theta=30), "cpu").metrics
    assert rotated["mcc"] == pytest.approx(1)
    assert rotated["mcc_sparse"] < 0.98


def test_recovery_agrees_with_the_metrics():
    one = run()
    sample, new = make_data(one)
    latents = PrincipalComponents(3).fit(sample.x).transform(new.x)
    found = measure(one, "cpu").metrics
    assert found["mcc"] == pytest.approx(mcc(new.z, latents))
    assert found["r2"] == pytest.approx(r2(latents, new.z))
    assert found["score"] == pytest.approx(PrincipalComponents(3).fit(sample.x).score(new.x))


def test_independent_rows_have_no_edges(oracle, monkeypatch):
    seen = {}
    real = measures.mcc

    def spy(z, found):
        seen[len(seen)] = z
        return real(z, found)

    monkeypatch.setattr(measures, "mcc", spy)
    found = measure(run("independent", "oracle", oracle, k=3, rows=4000, new_rows=4000, rho=75), "cpu").metrics
    assert found["mcc_independent"] == pytest.approx(1)
    assert found["mcc"] == pytest.approx(1)
    apart, dependent = (np.abs(np.corrcoef(z.T) - np.eye(3)).max() for z in (seen[0], seen[1]))
    assert apart < dependent / 2


def test_blocks_of_the_truth_are_separated(oracle):
    found = measure(run("blocks", "oracle", oracle, n=4), "cpu").metrics
    assert found["block_r2"] == pytest.approx(1)
    assert found["worst_block"] == pytest.approx(1)
    assert 0 <= found["leak"] < 1


def test_latents_of_a_block_are_compared_with_it_and_with_others(oracle):
    """The oracle's latents are the true ones: each is a function of its block."""
    found = measure(run("blocks", "oracle", oracle, n=4), "cpu")
    assert found.metrics["latent_r2"] == pytest.approx(1)
    table = np.array(found.arrays["blocks"])
    np.testing.assert_allclose(table[[0, 1], 0], 1)
    np.testing.assert_allclose(table[[2, 3], 1], 1)
    assert "frames" not in found.arrays
    assert "ball_1" not in found.metrics


BALLS = {"law": "balls", "balls": 2, "rows": 60, "new_rows": 60}


@pytest.mark.parametrize(("seed", "drawn"), [(FIRST_SEED, {"blocks", "frames", "traversals"}), (0, {"blocks"})])
def test_images_of_the_first_seed_are_drawn(seed, drawn):
    encoder = Method("KeypointEncoder", {"max_steps": 2, "batch_size": 8})
    how = Method("PrincipalComponents", before=encoder)
    found = measure(replace(run("blocks", "a", how, seed=seed), values=BALLS), "cpu")
    assert set(found.arrays) == drawn
    scores = [found.metrics["ball_1"], found.metrics["ball_2"]]
    assert found.metrics["block_r2"] == pytest.approx(np.mean(scores))
    assert found.metrics["worst_block"] == min(scores)


def test_only_the_reference_is_given_the_positions(monkeypatch):
    class Spy(PrincipalComponents):
        def fit(self, X, y=None):
            Spy.seen = y
            return super().fit(X)

    monkeypatch.setattr("identifiable.Spy", Spy, raising=False)
    one = run(method="Spy", how=Method("Spy"))
    sample, _ = make_data(one)
    assert fit(one, sample, "cpu").decodes
    assert Spy.seen is None
    monkeypatch.setitem(measures.GIVEN, "Spy", "z")
    fit(one, sample, "cpu")
    np.testing.assert_array_equal(Spy.seen, sample.z)
    assert set(measures.GIVEN) - {"Spy"} == {"GroupedSparse", "LabelledKeypoints"}
    labelled = run("blocks", "a", Method("LabelledKeypoints", {"max_steps": 2, "batch_size": 8}))
    labelled = replace(labelled, values=BALLS)
    assert not fit(labelled, make_data(labelled)[0], "cpu").decodes


def test_graph_of_the_truth_is_that_of_the_true_latents(oracle):
    found = measure(run("graph", "oracle", oracle), "cpu").metrics
    assert found["delta_shd"] == 0
    assert found["shd_recovered"] == found["shd_true"]
    assert found["mcc"] == pytest.approx(1)


def test_fits_of_a_deterministic_method_agree():
    found = measure(run("agreement", runs=2, directions=1), "cpu").metrics
    assert all(found[name] == pytest.approx(1) for name in ("weak", "weak_all", "strong"))


def test_methods_before_a_method_transform_its_input():
    how = Method("PrincipalComponents", {"n_latents": 1}, before=Method("PrincipalComponents", {"n_latents": 2}))
    one = run(how=how)
    sample, new = make_data(one)
    fitted = fit(one, sample, "cpu")
    assert fitted.prepare(new.x).shape == (300, 2)
    assert fitted.latents(new).shape == (300, 1)
    assert fitted.metrics().keys() == {"seconds"}


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_parameters_of_the_built_estimator():
    sample, _ = make_data(run())
    one = run(how=Method("VAE", {"net": NET, "max_steps": 1, "batch_size": 32}), net="mlp", latents=2, seed=7)
    model = fit(one, sample, "cpu", restarts=3).model
    assert (model.net, model.n_latents, model.random_state, model.device, model.n_restarts) == ("mlp", 2, 7, "cpu", 3)


def test_images_become_tables_for_methods_without_a_net(monkeypatch):
    def images(split):
        x = np.random.default_rng(split == "test").integers(1, 5, size=(50, 64 * 64)) / 4
        x[:, :128] = 0.0  # constant pixels
        return Sample(x, image_shape=(64, 64))

    monkeypatch.setattr(measures, "IMAGES", {"mnist": images})
    one = run(law="mnist", rows=40, new_rows=30)
    sample, new = make_data(one)
    assert (len(sample), len(new)) == (40, 30)
    assert sample.x.shape[1] == new.x.shape[1] == 1024 - 32
    np.testing.assert_allclose(sample.x.mean(), 0.625, atol=0.01)
    sample, _ = make_data(replace(one, how=Method("VAE", {"net": "mlp"})))
    assert sample.image_shape == (64, 64)


def test_the_gpu_is_used_for_wide_nets_only():
    table1 = {r.method: r for r in find("xu2026/table1").runs()}
    assert [best_device(table1[m], "auto") for m in ("PDGMM", "TwoStage")] == ["cpu", "auto"]
    assert best_device(table1["PDGMM"], "cuda:1") == "cuda:1"
