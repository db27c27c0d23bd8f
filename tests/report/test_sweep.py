import math
from dataclasses import replace

import fake_sweep
from identifiable.report.sweep import Sweep, label_of, natural


def test_runs_are_the_last_records_sorted_by_seed():
    first, *others = fake_sweep.records(failed=0)[:45]
    again = replace(first, seconds=-1.0)
    broken = replace(others[0], status="failed")
    sweep = Sweep(fake_sweep.RECIPE, [first, *others[::-1], broken, again])
    assert len(sweep.runs) == 45
    assert sweep.of(first.run.setting, first.run.method)[0].seconds == -1
    assert [r.run.key for r in sweep.failed] == [broken.run.key]
    assert len(sweep.done) == 44
    seeds = [r.run.seed for r in sweep.of(others[10].run.setting, others[10].run.method)]
    assert seeds == sorted(seeds)
    assert len(seeds) == 5


def test_methods_published_ones_and_baselines_have_an_order_and_a_style():
    sweep = Sweep(fake_sweep.RECIPE, fake_sweep.records())
    kinds = [kind for kind, _ in sweep.columns]
    assert kinds == ["method"] * 4 + ["published"] * 2 + ["baseline"] * 4
    assert sweep.methods[-4:] == ["raw x", "PCA", "FastICA", "SparseUnmixing"]
    assert sweep.published == ["published: two stages", "published: VaDE"]
    styles = {column: sweep.mark_style(*column) for column in sweep.columns}
    assert styles["published", "published: VaDE"] == styles["method", "VaDE"]
    assert len({(s.shade, s.marker) for s in styles.values()}) == 9
    assert sweep.main == "mcc"
    assert sweep.settings == list(fake_sweep.SETTINGS)


def test_the_scale_covers_all_means():
    sweep = Sweep(fake_sweep.RECIPE, fake_sweep.records())
    means = sweep.means("score")
    assert len(means) == len(sweep.rows) == 170
    assert sum(map(math.isfinite, means)) == 136  # published rows have none
    assert (sweep.scale.low, sweep.scale.high) == (0, 1)


def test_labels_and_order_of_values():
    assert [label_of(m) for m in ("r2", "mean_mcc", "other")] == ["R²", "mean MCC", "other"]
    values = ["b", "75", True, 10, "1 var", 5.5]
    assert sorted(values, key=natural) == ["1 var", 5.5, 10, "75", True, "b"]
