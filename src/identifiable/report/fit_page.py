"""The trust report: what was found in a table, latent by latent, and how far to trust it.

It is made of the account that a fit writes (`certificate.json`) and, where rows are pictures, of `Pictures`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identifiable.agreement.stability import THRESHOLDS
from identifiable.errors import join_few
from identifiable.report.html import Fact, Page, Section, render
from identifiable.report.portraits import bars, circle, effect_map, film, histogram
from identifiable.report.table import Column, Entry, Row, Table, number

MARKS = {"stable": "better", "doubtful": "quiet", "unstable": "worse"}
HEADINGS = {
    "identified": "Every latent comes back",
    "doubtful": "Some latents come back, some do not",
    "nothing identifiable": "Nothing identifiable",
}
SIGNS = {"holds": "holds", "fails": "fails", "inconclusive": ""}
MOST_TIED = 3  # columns named beside a latent
MOST_COLUMNS = 40  # rows of the table of effects
DRAWN = 8  # bars of the strongest columns

Account = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Pictures:
    """A latent whose rows are pictures.

    Attributes
    ----------
    along : (steps, height, width) or (steps, height, width, channels), in [0, 1]: rows as it moves.
    effects : (height, width) or (height, width, channels): what moving it does to each pixel.
    """

    along: NDArray[np.floating[Any]]
    effects: NDArray[np.floating[Any]]


def fit_page(account: Account, name: str, pictures: Sequence[Pictures] = ()) -> Page:
    """Return the page of a fit to the table of this name; `pictures` for each latent, where rows are some."""
    sections = [
        _short(account),
        _latents(account, named=not pictures),
        _portraits(account, pictures),
        None if pictures else _effects(account),
        _graph(account),
        _tried(account),
        _promise(account),
        _data(account),
        _reading(),
    ]
    return Page(
        title=_heading(account),
        sections=[section for section in sections if section is not None],
        kicker=f"identifiable · {name}",
        question=f"{_family(account)} {_counted(account)}",
        facts=_facts(account),
    )


def in_words(trust: Mapping[str, Any], i: int) -> str:
    """Say how far a latent is known.

    Examples
    --------
    >>> in_words({"verdict": "stable", "block": [0, 4]}, 0)
    'only together with z4'
    >>> in_words({"verdict": "unstable", "block": [0]}, 0)
    'not identified: it does not come back'
    """
    if trust["verdict"] == "unstable":
        return "not identified: it does not come back"
    others = [f"z{j}" for j in trust["block"] if j != i]
    if others:
        return f"only together with {join_few(others)}"
    return "up to sign, scale and shift" if trust["verdict"] == "stable" else "doubtful: it comes back in part"


def _heading(account: Account) -> str:
    none = all(trust["verdict"] != "stable" for trust in account["latents"])
    return "No latent comes back surely" if account["verdict"] == "doubtful" and none else HEADINGS[account["verdict"]]


def _family(account: Account) -> str:
    taken = account["tried"][0]
    return f"Taken for {taken['says']} ({taken['name']})."


def _counted(account: Account) -> str:
    verdicts = [trust["verdict"] for trust in account["latents"]]
    return f"{verdicts.count('stable')} of {len(verdicts)} latents are stable."


def _facts(account: Account) -> list[Fact]:
    data, versions = account["data"], account["versions"]
    facts = [
        Fact("Rows used", f"{data['rows_used']} of {data['rows']}"),
        Fact("Columns used", str(len(data["columns_used"]))),
        Fact("Latents", str(len(account["latents"]))),
        Fact("u", ", ".join(data["u"])),
        Fact("Another run", "" if account["expected"] is None else f"agrees at {account['expected']:.2f}"),
        Fact("Finished", account["finished"][:16].replace("T", " ") + " UTC"),
        Fact("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return [fact for fact in facts if fact.value]


def _short(account: Account) -> Section:
    mark = {"identified": "better", "doubtful": "quiet"}.get(account["verdict"], "worse")
    lines = [(account["verdict"].capitalize(), account["reasons"], mark)]
    return Section("short", "In short", render("verdict.html", lines=lines))


def _latents(account: Account, *, named: bool) -> Section:
    rest, rivals = (
        any(trust[name] is not None for trust in account["latents"])
        for name in ("inactive_share", "alternative_agreement")
    )
    columns = [
        Column("Latent", name=True),
        Column("Verdict"),
        Column("Again", "number", falling=True),
        Column("Halves", "number", falling=True),
        *([Column("Rivals", "number", falling=True)] if rivals else []),
        *([Column("Rests", "number", falling=True)] if rest else []),
        Column("Known"),
        *([Column("Tied to", sortable=False)] if named else []),
    ]
    rows = []
    for i, trust in enumerate(account["latents"]):
        tied = ", ".join(f"{name} {number(v, 2)}" for name, v in list(trust["columns"].items())[:MOST_TIED])
        rows.append(
            Row(
                [
                    Entry(f"z{i}", float(i), "group"),
                    Entry(trust["verdict"], trust["verdict"], MARKS[trust["verdict"]]),
                    *(
                        _share(trust[name], 3)
                        for name in (
                            "seed_agreement",
                            "split_half_agreement",
                            *(["alternative_agreement"] if rivals else []),
                        )
                    ),
                    *([Entry(_percent(trust["inactive_share"]), _key(trust["inactive_share"]))] if rest else []),
                    Entry(in_words(trust, i)),
                    *([Entry(tied)] if named else []),
                ],
                f"z{i}",
            )
        )
    lead = (
        "Again: correlation with the same latent in fits from other seeds; halves: with fits to two halves of the "
        "rows, the lower, on rows that these have not seen. "
    )
    if rivals:
        lead += "Rivals: with models that might have been taken as well. "
    if rest:
        lead += "Rests: share of rows in which it does not move. "
    if named:
        lead += (
            "Tied to: what moving it from its lower to its upper decile does to a column, in standard deviations of "
            "the column."
        )
    return Section(
        "latents", "Each latent", Table("Reliability of each latent", columns, rows, sorted_by=0).html(), lead
    )


def _portraits(account: Account, pictures: Sequence[Pictures]) -> Section:
    portraits = []
    for i, trust in enumerate(account["latents"]):
        name, spread = f"z{i}", trust["histogram"]
        drawings = [histogram(spread["counts"], spread["low"], spread["high"], f"Histogram of {name}")]
        if pictures:
            drawings.append(film(pictures[i].along, f"Pictures along {name}, from its lower to its upper end"))
            drawings.append(effect_map(pictures[i].effects, f"What {name} does to each pixel"))
        else:
            drawings.append(bars(dict(list(trust["columns"].items())[:DRAWN]), f"What {name} does to columns"))
        mark = MARKS[trust["verdict"]]
        portraits.append({"name": name, "verdict": trust["verdict"], "mark": mark, "drawings": drawings})
    lead = "How the values of each latent are spread over the rows (square roots of counts), and "
    if pictures:
        lead += (
            "what a row looks like as it moves from its 5th to its 95th percentile, all others at their medians. "
            "Below, the pixels that it makes brighter, in blue, and darker, in red."
        )
    else:
        lead += "the columns that it moves most: to the right where they grow with it, to the left where they fall."
    return Section("portraits", "Each latent, drawn", render("portraits.html", portraits=portraits), lead)


def _share(value: float | None, digits: int) -> Entry:
    return Entry("–" if value is None else number(value, digits), _key(value))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _key(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _effects(account: Account) -> Section | None:
    latents = account["latents"]
    names = list(account["data"]["columns_used"])
    strongest = sorted(names, key=lambda n: -max(abs(t["columns"].get(n, 0.0)) for t in latents))[:MOST_COLUMNS]
    columns = [Column("Column", name=True), *(Column(f"z{i}", "number", falling=True) for i in range(len(latents)))]
    rows = []
    for name in (n for n in names if n in set(strongest)):
        each = [t["columns"].get(name, 0.0) for t in latents]
        most = max(map(abs, each))
        entries = [Entry(number(v, 2), abs(v), "best" if abs(v) == most else "") for v in each]
        rows.append(Row([Entry(name, name), *entries], name))
    lead = "The effect of each latent on each column, as above. Bold: the latent that moves it most."
    if len(strongest) < len(names):
        lead += f" The {len(strongest)} columns of {len(names)} that are moved most."
    table = Table("Effects on the columns", columns, rows, tall=len(rows) > 20, filtered="Filter columns")
    return Section("effects", "What each latent moves", table.html(), lead)


def _graph(account: Account) -> Section | None:
    graph = account.get("graph")
    if graph is None:
        return None
    lead = (
        "Which stable latents depend on each other given the others, by the PC algorithm: an arrow where the direction "
        "follows from independences alone. It assumes that there is no common cause outside, and no cycle."
    )
    if "why" in graph:
        return Section("graph", "The graph among the latents", render("reading.html", lines=[graph["why"]], notes=""))
    columns = [Column("From", name=True), Column("", sortable=False), Column("To"), Column("Strength", "number")]
    signs = {"->": "→", "-": "–"}
    rows = [
        Row(
            [
                Entry(e["from"], e["from"], "group"),
                Entry(signs[e["mark"]]),
                Entry(e["to"], e["to"]),
                Entry(number(e["strength"], 2), abs(e["strength"])),
            ],
            f"{e['from']} {e['to']}",
        )
        for e in graph["edges"]
    ]
    if not rows:
        body = render("reading.html", lines=["No edge: the stable latents look independent."], notes="")
        return Section("graph", "The graph among the latents", body, lead)
    names = sorted({e[end] for e in graph["edges"] for end in ("from", "to")}, key=lambda n: int(n[1:]))
    drawing = circle(names, graph["edges"], "The graph among the latents")
    return Section("graph", "The graph among the latents", drawing + Table("Edges", columns, rows).html(), lead)


def _tried(account: Account) -> Section:
    columns = [
        Column("Model", name=True),
        Column("Takes the data for"),
        Column("Gain", "number", falling=True),
        Column("Agreement", "number", falling=True),
        Column("Seconds", "number"),
        Column("Note", sortable=False),
    ]
    rows = []
    for place, tried in enumerate(account["tried"]):
        gain = "–" if tried["gain"] is None else f"{number(tried['gain'], 2)} ± {number(tried['error'], 2)}"
        note = "taken" if place == 0 else tried["note"]
        rows.append(
            Row(
                [
                    Entry(tried["name"], tried["name"], "group" if place == 0 else ""),
                    Entry(tried["says"]),
                    Entry(gain, _key(tried["gain"])),
                    _share(tried["agreement"], 3),
                    Entry(number(tried["seconds"], 1), float(tried["seconds"])),
                    Entry(note),
                ]
            )
        )
    lead = (
        "Gain: log-likelihood of held-out rows above that of a single Gaussian, in nats a row. Agreement: of restarts "
        "with each other. A model that explains no more than a Gaussian has found nothing."
    )
    return Section("tried", "What was tried", Table("Models that were tried", columns, rows).html(), lead)


def _promise(account: Account) -> Section | None:
    found = account["certificate"]
    if found is None:
        return None
    checks = [
        {"name": c["name"], "verdict": c["verdict"], "words": c["sentence"], "mark": SIGNS.get(c["verdict"], "")}
        for c in found["checks"]
    ]
    meaning = f"{found['meaning'][:1].upper()}{found['meaning'][1:]}."
    if found["if_undecided_hold"] != found["level"]:
        meaning += f" At best {found['if_undecided_hold']}, if everything that cannot be told holds."
    body = render("promise.html", level=found["level"], theorem=found["theorem"], meaning=meaning, checks=checks)
    lead = "What the theorems promise for this model, if its assumptions hold; they are checked on what was learnt."
    return Section("promise", "What can be promised", body, lead)


def _data(account: Account) -> Section:
    lines = [("Seen", account["data"]["seen"], "")]
    return Section("data", "The data", render("verdict.html", lines=lines), "What was seen before anything was fitted.")


def _reading() -> Section:
    lines = [
        "Latents that are identified come back: from another start, and from other rows. Those that do not are shown "
        "as unstable, and their values say as much about the start as about the data.",
        "Coming back is necessary, not sufficient: a method can return to the same wrong answer. What makes it right "
        "is that the assumptions above hold for your data.",
        "Sign, scale and shift of a latent are arbitrary, and so is the order of the latents.",
        f"Stable: all these correlations are {THRESHOLDS.stable} or more; doubtful: {THRESHOLDS.doubtful} or more. "
        "Another run: the mean correlation to expect with the latents of another run on this table that takes "
        "the same model, on new rows. Halves say what to expect of another table.",
    ]
    return Section("reading", "How to read this page", render("reading.html", lines=lines, notes=""))
