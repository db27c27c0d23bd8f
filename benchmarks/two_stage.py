"""Does the published autoencoder improve on the raw data, and does its norm term have an effect?

    python benchmarks/two_stage.py [--settings "n=10" "rho=1var"] [--seeds 5] [--steps 5001] [--unmix]

Stage 1 of `TwoStage` at its published size, on fresh batches of the published mixing: as published, without the norm
term, and with it but without the ε of batch normalisation, which allows the code to shrink. Prints R² of x and of the
code regressed on the true latents, fitted on half of 10,000 new rows and scored on the other, and MCC of the code, and
of `SparseUnmixing` of the code (--unmix). The ground truth is used for these scores only. About four minutes on an
H200. `identifiable reproduce xu2026/table1` runs both stages.
"""

from common import Results, arguments, choose, parse
from identifiable import SparseUnmixing, TwoStage
from identifiable.data import make_pdgmm
from identifiable.experiments.papers import find
from identifiable.metrics import mcc, r2

PILOT, TEST = 20_000, 10_000
SETTINGS = {setting.name: dict(setting.values) for setting in find("xu2026/table1").settings}
PUBLISHED = {p.setting: p.mean for p in find("xu2026/table1").published if p.metric == "stage1_r2"}
VARIANTS = {"published": {}, "no norm": {"norm_weight": 0.0}, "no ε": {"epsilon": 1e-12}}


def main() -> None:
    parser = arguments(__doc__)
    choose(parser, "--settings", SETTINGS, ["n=10", "rho=1var"])
    choose(parser, "--variants", VARIANTS)
    parser.add_argument("--steps", type=int, default=5001)
    parser.add_argument("--unmix", action="store_true")
    options = parse(parser)
    results = Results(options.csv)
    for setting in options.settings:
        values = {k: v for k, v in SETTINGS[setting].items() if k not in ("law", "rows")}
        for seed in options.seeds:
            sample = make_pdgmm(PILOT, **values, random_state=seed)
            test, n = sample.source.sample(TEST, random_state=1000 + seed), values["n"]
            for variant in options.variants:
                params = VARIANTS[variant] | {"max_steps": options.steps, "sparse_steps": 0, "n_restarts": 1}
                model = TwoStage(n, **params, random_state=seed, verbose=0).fit(sample.source)
                code = model.transform(test.x)
                row = {"setting": setting, "variant": variant, "seed": seed, "published R2": PUBLISHED[setting]}
                row |= {"R2 x": r2(test.x, test.z, held_out=True), "R2 code": r2(code, test.z, held_out=True)}
                row |= {"MCC code": mcc(test.z, code), "rms code": float((code**2).mean() ** 0.5)}
                if options.unmix:
                    row["MCC unmixed"] = mcc(test.z, SparseUnmixing(n, random_state=0).fit_transform(code))
                results.add(row)
    groups = results.frame().drop(columns="seed").groupby(["setting", "variant"], sort=False)
    print(groups.agg(["mean", "std"]).round(3).to_string())


if __name__ == "__main__":
    main()
