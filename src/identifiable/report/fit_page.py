"""The page of a fit: the latents found in a table, the reliability of each, and what is guaranteed.

It is made from a :class:`~identifiable.report.fit_report.FitReport` and, for rows that are images, from
:class:`~identifiable.report.image_page.Pictures`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from identifiable.agreement.stability import THRESHOLDS
from identifiable.auto.verdict import HEADLINES, LatentReport
from identifiable.errors import join_few
from identifiable.report.certificate_text import certificate_in_words
from identifiable.report.fit_report import FitReport
from identifiable.report.html import Fact, Page, Section, render, to_the_minute
from identifiable.report.image_page import MARKS, Pictures, examples_section, traversals_section
from identifiable.report.portraits import bars, circle, effect_map, film, histogram
from identifiable.report.svg import tag
from identifiable.report.table import Column, Entry, Row, Table, number

ARROWS = {"->": "→", "-": "–"}
AGREEMENTS = {  # heading and meaning
    "seed_agreement": ("Seed agreement", "correlation with the matching latent in refits with other seeds"),
    "split_half_agreement": (
        "Split-half agreement",
        "the lower of the correlations with fits to each half of the rows, on rows that these fits have not seen",
    ),
    "alternative_agreement": (
        "Alternative-model agreement",
        "correlation with the matching latent of other models that could have been selected",
    ),
}
MOST_EFFECTS = 3  # columns named beside a latent
MOST_COLUMNS = 40  # rows of the table of effects
MOST_BARS = 8  # columns drawn for a latent
TALL = 20  # rows from which a table scrolls


def fit_page(report: FitReport, name: str, pictures: Pictures | None = None) -> Page:
    """Return the page of a fit.

    Parameters
    ----------
    report : what the fit found.
    name : name of the table that was fitted.
    pictures : examples and images along each latent, if rows are images.
    """
    of_columns = report.data.picture is None
    sections = [
        _verdict(report),
        None if pictures is None else examples_section(pictures),
        _reliability(report, named=of_columns),
        _portraits(report, pictures)
        if pictures is None or pictures.effects.size
        else traversals_section(report, pictures),
        _effects(report) if of_columns else None,
        _graph(report),
        _models(report),
        _guarantees(report),
        _data(report),
        _reading(positions=any(latent.meaning for latent in report.latents)),
    ]
    model, count = report.candidates[0], len(report.latents)
    return Page(
        title=report.headline,
        sections=[section for section in sections if section is not None],
        kicker=f"identifiable · {name}",
        question=f"Selected model: {model.name} ({model.says}). Stable latents: {report.stable} of {count}.",
        facts=_facts(report),
    )


def in_words(latent: LatentReport, i: int) -> str:
    """Say up to what latent i is identified.

    Examples
    --------
    >>> agreements = (1.0, 1.0, 1.0, 0.5)
    >>> in_words(LatentReport("stable", *agreements, block=(0, 4), guaranteed=True), 0)
    'only together with z4'
    >>> in_words(LatentReport("stable", *agreements, block=(0,)), 0)
    'reproducible, not guaranteed'
    >>> in_words(LatentReport("stable", *agreements, block=(0,), meaning="x of thing 1"), 0)
    'as x of thing 1, by the architecture'
    """
    if latent.verdict == "unstable":
        return "not reproducible"
    if latent.verdict == "doubtful":
        return "doubtful: partly reproducible"
    if latent.meaning:
        return f"as {latent.meaning}, by the architecture"
    equal = f"; it equals {latent.column}" if latent.column else ""
    if not latent.guaranteed:
        return f"reproducible, not guaranteed{equal}"
    others = [f"z{j}" for j in latent.block if j != i]
    return (f"only together with {join_few(others)}" if others else "up to sign, scale and shift") + equal


def _facts(report: FitReport) -> list[Fact]:
    data, expected = report.data, report.expected_mcc
    return [
        Fact("Rows used", f"{data.rows_used} of {data.rows}"),
        Fact("Columns used" if data.picture is None else "Pixels used", str(len(data.columns_used))),
        Fact("Latents", str(len(report.latents))),
        Fact("u", ", ".join(data.u)),
        Fact("Expected agreement", "" if math.isnan(expected) else f"{expected:.2f} with an independent run"),
        Fact("Finished", to_the_minute(report.finished)),
        Fact("Versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())),
    ]


def _verdict(report: FitReport) -> Section:
    words, usable = report.verdict, HEADLINES[report.verdict]
    mark = "worse" if not usable else "quiet" if words == "partly reproducible" else "better"
    lines = [(words[:1].upper() + words[1:], report.reasons, mark)]
    return Section("short", "Summary", render("verdict.html", lines=lines))


def _reliability(report: FitReport, *, named: bool) -> Section:
    """Show verdict and agreement of each latent; `named`: also the columns it changes most."""
    latents = report.latents
    shown = {key: words for key, words in AGREEMENTS.items() if key != "alternative_agreement" or _any(latents, key)}
    has_inactive = _any(latents, "inactive_share")
    columns = [Column("Latent", name=True), Column("Verdict")]
    columns += [Column(title, "number", falling=True) for title, _ in shown.values()]
    columns += [Column("Inactive", "number", falling=True)] if has_inactive else []
    goodness = report.goodness
    columns += [Column("Misfit", "number")] if goodness else []
    columns += [Column("Known"), *([Column("Strongest effects", sortable=False)] if named else [])]
    rows = []
    for i, latent in enumerate(latents):
        entries = [Entry(f"z{i}", float(i), "group")]
        entries.append(Entry(latent.verdict, latent.verdict, MARKS[latent.verdict]))
        entries += [Entry.number(getattr(latent, key), 3) for key in shown]
        entries += [_percent(latent.inactive_share)] if has_inactive else []
        entries += [_misfit(goodness, i)] if goodness else []
        effects = list(latent.columns.items())[:MOST_EFFECTS]
        tied = [Entry(", ".join(f"{name} {number(v, 2)}" for name, v in effects))] if named else []
        rows.append(Row([*entries, Entry(in_words(latent, i)), *tied], f"z{i}"))
    lead = [f"{title}: {meaning}." for title, meaning in shown.values()]
    lead += ["Inactive: share of rows in which the latent is constant."] if has_inactive else []
    if any(latent.meaning for latent in latents):
        lead.append("x and y are the position of a thing in the image, by the architecture of the model.")
    if goodness:
        lead.append(
            "Misfit: largest difference between the distribution functions of the latent in held-out rows and in "
            f"samples of the model; above {goodness['largest_distance']:.2f} the model does not describe it. A "
            f"classifier distinguishes rows from samples with AUC {goodness['auc']:.2f} (at most "
            f"{goodness['largest_auc']:.2f})."
        )
    if named:
        lead.append(
            "Strongest effects: change of a column, in its standard deviations, as the latent moves from its lower to "
            "its upper decile."
        )
    table = Table("Reliability of each latent", columns, rows, sorted_by=0)
    return Section("latents", "Reliability", table.html(), " ".join(lead))


def _misfit(goodness: Mapping[str, Any], i: int) -> Entry:
    value = goodness["distances"][i]
    return Entry(number(value, 2), float(value), "worse" if value > goodness["largest_distance"] else "")


def _any(latents: Sequence[LatentReport], key: str) -> bool:
    return any(not math.isnan(getattr(latent, key)) for latent in latents)


def _percent(value: float) -> Entry:
    return Entry("") if math.isnan(value) else Entry(f"{100 * value:.0f} %", value)


def _portraits(report: FitReport, pictures: Pictures | None) -> Section:
    portraits = []
    for i, (latent, counts) in enumerate(zip(report.latents, report.histograms, strict=True)):
        name = f"z{i}"
        drawings = [histogram(counts.counts, counts.low, counts.high, f"Histogram of {name}")]
        if pictures is not None:
            drawings.append(film(pictures.along[i], f"Images along {name}, from its lower to its upper end"))
            drawings.append(effect_map(pictures.effects[i], f"Effect of {name} on each pixel"))
        elif latent.columns:
            drawings.append(bars(dict(list(latent.columns.items())[:MOST_BARS]), f"Effects of {name} on columns"))
        mark = MARKS[latent.verdict]
        portraits.append({"name": name, "verdict": latent.verdict, "mark": mark, "drawings": drawings})
    lead = "Histogram of each latent over the rows (heights are square roots of counts), and "
    if pictures is not None:
        lead += (
            "a decoded row as the latent moves from its 5th to its 95th percentile, with all others at their medians. "
            "Below, the pixels that become brighter are blue, those that become darker red."
        )
    else:
        lead += "the columns it changes most: bars point right if the column increases with the latent, else left."
    return Section("portraits", "Distributions and effects", render("portraits.html", portraits=portraits), lead)


def _effects(report: FitReport) -> Section | None:
    latents, names = report.latents, report.data.columns_used
    effects = {name: [latent.columns.get(name, 0.0) for latent in latents] for name in names}
    largest = {name: max(map(abs, values)) for name, values in effects.items()}
    strongest = set(sorted(names, key=lambda name: -largest[name])[:MOST_COLUMNS])
    columns = [Column("Column", name=True), *(Column(f"z{i}", "number", falling=True) for i in range(len(latents)))]
    rows = []
    for name in (name for name in names if name in strongest):
        values = [Entry(number(v, 2), abs(v), "best" if abs(v) == largest[name] else "") for v in effects[name]]
        rows.append(Row([Entry(name, name), *values], name))
    lead = "Effect of each latent on each column, as above. Bold: the latent with the largest effect."
    if len(strongest) < len(names):
        lead += f" Shown are the {len(strongest)} of {len(names)} columns with the largest effects."
    table = Table("Effects on columns", columns, rows, tall=len(rows) > TALL, filtered="Filter columns")
    return Section("effects", "Effects on columns", table.html(), lead)


def _graph(report: FitReport) -> Section | None:
    graph = report.graph
    if graph is None:
        return None
    lead = (
        "Conditional dependences among the stable latents, estimated by the PC algorithm. An arrow is drawn if the "
        "independences determine the direction. PC assumes no hidden common causes and no cycles."
    )
    edges, label = graph.get("edges", ()), "Causal graph of the latents"
    if not edges:
        why = graph.get("why", "No edges: the stable latents look independent.")
        return Section("graph", label, tag("p", why, class_="prose"), "" if "why" in graph else lead)
    columns = [Column("From", name=True), Column("", sortable=False), Column("To"), Column("Strength", "number")]
    rows = []
    for e in edges:
        ends = Entry(e["from"], e["from"], "group"), Entry(ARROWS[e["mark"]]), Entry(e["to"], e["to"])
        strength = Entry(number(e["strength"], 2), abs(e["strength"]))
        rows.append(Row([*ends, strength], f"{e['from']} {e['to']}"))
    names = sorted({e[end] for e in edges for end in ("from", "to")}, key=lambda n: int(n[1:]))
    return Section("graph", label, circle(names, edges, label) + Table("Edges", columns, rows).html(), lead)


def _models(report: FitReport) -> Section:
    columns = [
        Column("Model", name=True),
        Column("Assumed structure"),
        Column("Gain", "number", falling=True),
        Column("Agreement", "number", falling=True),
        Column("Seconds", "number"),
        Column("Note", sortable=False),
    ]
    rows = []
    for place, tried in enumerate(report.candidates):
        gain_and_error = "–" if math.isnan(tried.gain) else f"{number(tried.gain, 2)} ± {number(tried.error, 2)}"
        entries = [
            Entry(tried.name, tried.name, "group" if place == 0 else ""),
            Entry(tried.says),
            Entry(gain_and_error, tried.gain),
            Entry.number(tried.agreement, 3),
            Entry.number(tried.seconds, 1),
            Entry("selected" if place == 0 else tried.note),
        ]
        rows.append(Row(entries))
    lead = (
        "Gain: log-likelihood of held-out rows above that of a single Gaussian, in nats per row. Agreement: between "
        "restarts. A model without gain over a Gaussian has found no latent structure."
    )
    if report.data.picture is not None:
        lead += " ImageUnmixing has no gain: it is selected by its reconstructions."
    return Section("tried", "Compared models", Table("Compared models", columns, rows).html(), lead)


def _guarantees(report: FitReport) -> Section | None:
    if report.certificate is None:
        return None
    body = render("guarantees.html", found=certificate_in_words(report.certificate))
    lead = (
        "What the theorems guarantee for this model if its assumptions hold, and a check of each on the fitted model."
    )
    return Section("guarantees", "Guarantees", body, lead)


def _data(report: FitReport) -> Section:
    lines = [("Inspection", report.data.seen, "")]
    return Section("data", "Data", render("verdict.html", lines=lines), "Inspection of the table before the fit.")


def _reading(*, positions: bool) -> Section:
    limits = {"stable": THRESHOLDS.stable, "doubtful": THRESHOLDS.doubtful}
    body = render("reading_fit.html", positions=positions, **limits)
    return Section("reading", "How to read this page", body)
