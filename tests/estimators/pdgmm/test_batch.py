"""A fit of PDGMM: which flows are trained, and which are kept."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from identifiable.estimators.pdgmm import batch
from identifiable.estimators.pdgmm.batch import FlowBatch, Trained
from identifiable.estimators.pdgmm.stages import Start, Training
from identifiable.priors.masked import FullGaussians, MaskedGaussians
from identifiable.priors.spike_slab import ShapedSlabs, SpikeAndSlab
from identifiable.training import minimise, run

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(200, 2))
PRIORS = {
    "masked": MaskedGaussians(torch.ones(1, 1, 2), torch.zeros(1, 1), torch.zeros(1, 1, 2)),
    "full": FullGaussians(torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None]),
}


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def trained(*angles, likelihoods=None, prior="masked", **given):
    """Restarts whose latents are turned by these angles."""
    likelihoods = np.arange(len(angles)) * 1.0 if likelihoods is None else np.array(likelihoods, dtype=float)
    model = SimpleNamespace(prior=PRIORS[prior])
    return Trained(model, range(len(angles)), np.stack([Z @ rotation(a) for a in angles]), likelihoods, **given)


def drive(generator):
    """Run the stages of a generator; return its result and the stages."""
    seen, history = [], None
    try:
        while True:
            seen.append(generator.send(history))
            history = minimise(**vars(seen[-1]))
    except StopIteration as end:
        return end.value, seen


def batch_of(rows, restarts=2, max_steps=50, shares=0.5, **how):
    """Starts at the identity for 2 restarts of either kind."""
    rows = torch.as_tensor(np.asarray(rows)).float()
    members, n = 2 * restarts * len(rows), rows.shape[-1]
    start = Start(
        torch.eye(n).repeat(members, 1, 1),
        *torch.stack([torch.zeros(members, n), torch.full((members, n), shares), torch.ones(members, n)]),
    )
    training = Training(2, 32, 1e-3, **how)
    return FlowBatch(rows, rows[:, :50], start, None, restarts, max_steps, training, 0)


# -- trained flows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("angles", "likelihoods", "kept"),
    [
        ((0.0,), [1.0], 0),
        ((0.0, 0.5), [1.0, 2.0], 1),
        ((0.0, 0.5), [2.0, 1.0], 0),
        ((0.3, 0.6, 0.0), [0.0, 1.0, 2.0], 0),
    ],
)
def test_the_kept_restart_agrees_most_and_is_likelier_among_two(angles, likelihoods, kept):
    assert trained(*angles, likelihoods=likelihoods).kept == kept


def test_agreement_is_up_to_an_affine_map_under_a_mixture_of_full_rank():
    plain, full = trained(0.0, 0.5, 0.7), trained(0.0, 0.5, 0.7, prior="full")
    assert (plain.full_rank, full.full_rank) == (False, True)
    assert plain.stability.score < 0.95
    assert full.stability.score == pytest.approx(1)
    assert (plain.stability.affine, full.stability.affine) == (False, True)
    assert trained(0.0, 0.0, 0.0, likelihoods=[1, 5, 2]).likelihood == 2
    assert plain.or_better_agreeing(full) is full
    assert full.or_better_agreeing(plain) is full


# -- what is trained ---------------------------------------------------------------------------


@pytest.fixture
def fits(monkeypatch):
    """Replace every training by its made-up result; return the results by name, and the names of those used."""
    results, used = {}, []

    def replaced(name):
        def method(self, *members):
            if members[-1]:
                used.append(name)
            return [results[name]] if members[-1] else []
            yield

        monkeypatch.setattr(FlowBatch, name, method)

    def stage_a(*arguments):
        return "sparse"
        yield

    for name in ("mixture", "shaped", "full_rank", "extended"):
        replaced(name)
    monkeypatch.setattr(batch, "spike_and_slab", stage_a)
    monkeypatch.setattr(FlowBatch, "better_kind", lambda self, model: [2, 3])
    monkeypatch.setattr(FlowBatch, "skewed", lambda self, kept: [0] if "shaped" in results else [])
    return results, used


AGREE, DISAGREE, LESS = trained(0.0, 0.0, skewed=True), trained(0.0, 0.6), trained(0.0, 0.7)
LIKELY, UNLIKELY = (trained(0.0, 0.6, likelihoods=[v, v], prior="full") for v in (9, -9))
EVERY = ["mixture", "full_rank", "extended"]


@pytest.mark.parametrize(
    ("results", "extended", "used", "found"),
    [
        ({"mixture": AGREE}, True, ["mixture"], "mixture"),
        ({"mixture": DISAGREE}, False, ["mixture"], "mixture"),
        ({"shaped": AGREE}, True, ["shaped"], "shaped"),
        ({"shaped": DISAGREE, "mixture": AGREE}, True, ["shaped", "mixture"], "mixture"),
        ({"mixture": DISAGREE, "full_rank": LIKELY}, True, ["mixture", "full_rank"], "full_rank"),
        ({"mixture": DISAGREE, "full_rank": UNLIKELY, "extended": AGREE}, True, EVERY, "extended"),
        ({"mixture": DISAGREE, "full_rank": LESS, "extended": LESS}, True, EVERY, "mixture"),
    ],
)
def test_a_fit_trains_more_only_where_restarts_disagree(fits, results, extended, used, found):
    fits[0].update(results)
    (kept,) = run(batch_of([Z]).fit(extended=extended))
    assert kept is results[found]
    assert fits[1] == used


def test_steps_and_members():
    one = batch_of([Z, Z], restarts=3, max_steps=1000)
    assert one.steps_a == 120
    assert one.steps_a + one.steps_b == 1000
    assert one.members(list(range(6)), [1]) == [3, 4, 5]
    assert one.sets.seen.tolist() == [0] * 6 + [1] * 6
    assert not one.sets.noise.any()
    assert batch_of([Z], shares=0.05).sets.noise.all()


@pytest.mark.parametrize(
    ("likelihoods", "angles", "kept"),
    [
        ([1, 2, 5, 4], (0, 0, 0, 0.6), [2, 3]),
        ([5, 4, 1, 2], (0, 0.6, 0, 0), [0, 1]),
        ([1, 4.5, 5, 4], (0, 0, 0, 0.6), [0, 1]),
    ],
)
def test_the_kind_of_start_is_the_likelier_one_or_agrees_more_where_they_overlap(
    monkeypatch, likelihoods, angles, kept
):
    found = trained(*angles).latents, np.array(likelihoods, dtype=float)
    monkeypatch.setattr(FlowBatch, "on_held_out", lambda self, model, sets: found)
    assert batch_of([Z]).better_kind(None) == kept


@pytest.mark.parametrize(
    ("kind", "skewed"), [("exponential", True), ("normal", False), ("one-sided", False), ("hardly active", False)]
)
def test_skewed_latents_are_recognised(kind, skewed):
    """Latents that are active on one side of their inactive value, or hardly ever, look skewed too."""
    rng = np.random.default_rng(0)
    active = rng.random((1000, 2)) < (0.05 if kind == "hardly active" else 0.4)
    z = rng.exponential(3, size=(1000, 2)) - 2 if kind == "exponential" else rng.normal(size=(1000, 2))
    z = np.where(active, np.abs(z) ** 1.5 if kind == "one-sided" else z, 0)
    one = batch_of([z], shares=active.mean())
    one = FlowBatch(
        one.rows, one.rows, *[getattr(one, k) for k in ("start", "stream", "R", "max_steps", "how", "seed")]
    )
    assert one.skewed([0, 1]) == [0] * skewed


# -- trainings ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """Two data sets of two latents, one of which is active at a time."""
    z = RNG.normal(2, 1, size=(2, 300, 2)) * np.eye(2)[RNG.integers(2, size=(2, 300))]
    return batch_of(z + 0.02 * RNG.normal(size=z.shape))


@pytest.mark.parametrize(
    ("name", "priors", "steps", "flags"),
    [
        ("mixture", [MaskedGaussians], [44], (False, False)),
        ("shaped", [ShapedSlabs], [2], (False, True)),
        ("extended", [SpikeAndSlab, MaskedGaussians], [125, 44], (True, False)),
        ("full_rank", [FullGaussians], [12], (False, False)),
    ],
)
def test_each_training_fits_its_prior(small, name, priors, steps, flags):
    if name == "mixture":
        sparse = run(batch.spike_and_slab(small.sets, small.start, 2, small.how, 0, SpikeAndSlab))
        found, stages = drive(small.mixture(sparse, [4, 5]))
    else:
        found, stages = drive(getattr(small, name)([1] if name == "full_rank" else [4, 5]))
    assert [type(stage.module.prior) for stage in stages] == priors
    assert [stage.plan.steps for stage in stages] == steps
    (one,) = found
    assert (one.extended, one.skewed) == flags
    assert one.latents.shape == (2, 50, 2)
    if name != "extended":  # its flows may be those before the second stage
        t, density = one.model(small.held[[1, 1]])
        np.testing.assert_allclose(one.latents, t.detach(), atol=1e-6)
        np.testing.assert_allclose(one.likelihoods, density.mean(1).detach(), atol=1e-6)


def test_trainings_without_members_do_nothing(small):
    for stages in (small.mixture(None, []), small.shaped([]), small.extended([]), small.full_rank([])):
        assert run(stages) == []


def test_stage_b_is_longer_the_more_the_rows_were_bent():
    x = RNG.normal(size=(1, 500, 2))
    affine, bent, strongly = (1 + x @ rotation(0.3), x + 0.4 * x**2, np.abs(x))
    factors = [FlowBatch.prolongation(torch.as_tensor(x), t) for t in (affine, bent, strongly)]
    assert factors[0] == 1.0 < factors[1] <= factors[2] == batch.SCHEDULE.longest_b
