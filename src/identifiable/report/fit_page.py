"""The page of a fit: the latents found in a table, the reliability of each, and what is guaranteed.

It is made from the summary that a fit writes (`certificate.json`) and, for rows that are images, from
:class:`~identifiable.report.image_page.Pictures`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from identifiable.agreement.stability import THRESHOLDS
from identifiable.auto.verdict import HEADLINES, headline
from identifiable.errors import join_few
from identifiable.report.certificate_text import certificate_in_words
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

Account = Mapping[str, Any]


def fit_page(account: Account, name: str, pictures: Pictures | None = None) -> Page:
    """Return the page of a fit.

    Parameters
    ----------
    account : the contents of `certificate.json`.
    name : name of the table that was fitted.
    pictures : examples and images along each latent, if rows are images.
    """
    meant = any(latent.get("meaning") for latent in account["latents"])
    sections = [
        _verdict(account),
        None if pictures is None else examples_section(pictures),
        _reliability(account, named=account["data"].get("picture") is None),
        _portraits(account, pictures)
        if pictures is None or pictures.effects.size
        else traversals_section(account["latents"], pictures),
        _effects(account) if account["data"].get("picture") is None else None,
        _graph(account),
        _models(account),
        _guarantees(account),
        _data(account),
        _reading(positions=meant),
    ]
    model, count = account["tried"][0], len(account["latents"])
    return Page(
        title=_heading(account),
        sections=[section for section in sections if section is not None],
        kicker=f"identifiable · {name}",
        question=f"Selected model: {model['name']} ({model['says']}). Stable latents: {_stable(account)} of {count}.",
        facts=_facts(account),
    )


def in_words(report: Mapping[str, Any], i: int) -> str:
    """Say up to what latent i is identified.

    Examples
    --------
    >>> in_words({"verdict": "stable", "block": [0, 4], "guaranteed": True}, 0)
    'only together with z4'
    >>> in_words({"verdict": "stable", "block": [0], "guaranteed": False}, 0)
    'reproducible, not guaranteed'
    >>> in_words({"verdict": "stable", "block": [0], "meaning": "x of thing 1"}, 0)
    'as x of thing 1, by the architecture'
    """
    if report["verdict"] == "unstable":
        return "not reproducible"
    if report["verdict"] == "doubtful":
        return "doubtful: partly reproducible"
    if report.get("meaning"):
        return f"as {report['meaning']}, by the architecture"
    equal = f"; it equals {report['column']}" if report.get("column") else ""
    if not report.get("guaranteed", True):
        return f"reproducible, not guaranteed{equal}"
    others = [f"z{j}" for j in report["block"] if j != i]
    return (f"only together with {join_few(others)}" if others else "up to sign, scale and shift") + equal


def _stable(account: Account) -> int:
    return sum(report["verdict"] == "stable" for report in account["latents"])


def _heading(account: Account) -> str:
    return headline(account["verdict"], _stable(account), len(account["latents"]))


def _facts(account: Account) -> list[Fact]:
    data, expected = account["data"], account["expected"]
    return [
        Fact("Rows used", f"{data['rows_used']} of {data['rows']}"),
        Fact("Columns used" if data.get("picture") is None else "Pixels used", str(len(data["columns_used"]))),
        Fact("Latents", str(len(account["latents"]))),
        Fact("u", ", ".join(data["u"])),
        Fact("Expected agreement", "" if expected is None else f"{expected:.2f} with an independent run"),
        Fact("Finished", to_the_minute(account["finished"])),
        Fact("Versions", ", ".join(f"{name} {version}" for name, version in account["versions"].items())),
    ]


def _verdict(account: Account) -> Section:
    usable = HEADLINES.get(account["verdict"], False)
    mark = "worse" if not usable else "quiet" if account["verdict"] == "partly reproducible" else "better"
    words = account["verdict"]
    lines = [(words[:1].upper() + words[1:], account["reasons"], mark)]
    return Section("short", "Summary", render("verdict.html", lines=lines))


def _reliability(account: Account, *, named: bool) -> Section:
    """Show verdict and agreement of each latent; `named`: also the columns it changes most."""
    latents = account["latents"]
    shown = {key: words for key, words in AGREEMENTS.items() if key != "alternative_agreement" or _any(latents, key)}
    has_inactive = _any(latents, "inactive_share")
    columns = [Column("Latent", name=True), Column("Verdict")]
    columns += [Column(title, "number", falling=True) for title, _ in shown.values()]
    columns += [Column("Inactive", "number", falling=True)] if has_inactive else []
    goodness = account.get("goodness")
    columns += [Column("Misfit", "number")] if goodness else []
    columns += [Column("Known"), *([Column("Strongest effects", sortable=False)] if named else [])]
    rows = []
    for i, report in enumerate(latents):
        entries = [Entry(f"z{i}", float(i), "group")]
        entries.append(Entry(report["verdict"], report["verdict"], MARKS[report["verdict"]]))
        entries += [Entry.number(report[key], 3) for key in shown]
        entries += [_percent(report["inactive_share"])] if has_inactive else []
        entries += [_misfit(goodness, i)] if goodness else []
        effects = list(report["columns"].items())[:MOST_EFFECTS]
        tied = [Entry(", ".join(f"{name} {number(v, 2)}" for name, v in effects))] if named else []
        rows.append(Row([*entries, Entry(in_words(report, i)), *tied], f"z{i}"))
    lead = [f"{title}: {meaning}." for title, meaning in shown.values()]
    lead += ["Inactive: share of rows in which the latent is constant."] if has_inactive else []
    if any(report.get("meaning") for report in latents):
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


def _any(latents: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(report[key] is not None for report in latents)


def _percent(value: float | None) -> Entry:
    return Entry("") if value is None else Entry(f"{100 * value:.0f} %", float(value))


def _portraits(account: Account, pictures: Pictures | None) -> Section:
    portraits = []
    for i, report in enumerate(account["latents"]):
        name, counts = f"z{i}", report["histogram"]
        drawings = [histogram(counts["counts"], counts["low"], counts["high"], f"Histogram of {name}")]
        if pictures is not None:
            drawings.append(film(pictures.along[i], f"Images along {name}, from its lower to its upper end"))
            drawings.append(effect_map(pictures.effects[i], f"Effect of {name} on each pixel"))
        elif report["columns"]:
            drawings.append(bars(dict(list(report["columns"].items())[:MOST_BARS]), f"Effects of {name} on columns"))
        mark = MARKS[report["verdict"]]
        portraits.append({"name": name, "verdict": report["verdict"], "mark": mark, "drawings": drawings})
    lead = "Histogram of each latent over the rows (heights are square roots of counts), and "
    if pictures is not None:
        lead += (
            "a decoded row as the latent moves from its 5th to its 95th percentile, with all others at their medians. "
            "Below, the pixels that become brighter are blue, those that become darker red."
        )
    else:
        lead += "the columns it changes most: bars point right if the column increases with the latent, else left."
    return Section("portraits", "Distributions and effects", render("portraits.html", portraits=portraits), lead)


def _effects(account: Account) -> Section | None:
    latents, names = account["latents"], list(account["data"]["columns_used"])
    effects = {name: [report["columns"].get(name, 0.0) for report in latents] for name in names}
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


def _graph(account: Account) -> Section | None:
    graph = account.get("graph")
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


def _models(account: Account) -> Section:
    columns = [
        Column("Model", name=True),
        Column("Assumed structure"),
        Column("Gain", "number", falling=True),
        Column("Agreement", "number", falling=True),
        Column("Seconds", "number"),
        Column("Note", sortable=False),
    ]
    rows = []
    for place, tried in enumerate(account["tried"]):
        gain = tried["gain"]
        gain_and_error = "–" if gain is None else f"{number(gain, 2)} ± {number(tried['error'], 2)}"
        entries = [
            Entry(tried["name"], tried["name"], "group" if place == 0 else ""),
            Entry(tried["says"]),
            Entry(gain_and_error, None if gain is None else float(gain)),
            Entry.number(tried["agreement"], 3),
            Entry.number(tried["seconds"], 1),
            Entry("selected" if place == 0 else tried["note"]),
        ]
        rows.append(Row(entries))
    lead = (
        "Gain: log-likelihood of held-out rows above that of a single Gaussian, in nats per row. Agreement: between "
        "restarts. A model without gain over a Gaussian has found no latent structure."
    )
    if account["data"].get("picture") is not None:
        lead += " ImageUnmixing has no gain: it is selected by its reconstructions."
    return Section("tried", "Compared models", Table("Compared models", columns, rows).html(), lead)


def _guarantees(account: Account) -> Section | None:
    if account["certificate"] is None:
        return None
    body = render("guarantees.html", found=certificate_in_words(account["certificate"]))
    lead = (
        "What the theorems guarantee for this model if its assumptions hold, and a check of each on the fitted model."
    )
    return Section("guarantees", "Guarantees", body, lead)


def _data(account: Account) -> Section:
    lines = [("Inspection", account["data"]["seen"], "")]
    return Section("data", "Data", render("verdict.html", lines=lines), "Inspection of the table before the fit.")


def _reading(*, positions: bool) -> Section:
    limits = {"stable": THRESHOLDS.stable, "doubtful": THRESHOLDS.doubtful}
    body = render("reading_fit.html", positions=positions, **limits)
    return Section("reading", "How to read this page", body)
