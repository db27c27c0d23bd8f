"""The tables of a sweep's page."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from markupsafe import Markup

from identifiable.experiments.summary import (
    BEATS,
    BEATS_NOT,
    BETTER,
    LOWER,
    SAME,
    WORSE,
    as_printed,
    kind_of,
    value_of,
)
from identifiable.persist import rename_certificate
from identifiable.report.experiment_shared import Sweep, label_of
from identifiable.report.html import Section, render
from identifiable.report.svg import Scale, strip, strip_axis, tag
from identifiable.report.table import (
    Column,
    Entry,
    Row,
    Table,
    digits_for,
    number,
    printed,
    set_spread,
)
from identifiable.theory.certificate import Level

SIGNS = {BETTER: "▲", SAME: "=", WORSE: "▼"}
MARKS = {BETTER: "better", SAME: "", WORSE: "worse"}
PHRASES = {BETTER: "better than published", SAME: "as published", WORSE: "worse than published"}
FILTER, SWITCH = "Filter settings", "Hide baselines"
DAGGER = "†"


# -- in short ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """In how many settings a method is better than published, as published, worse; and in how many it beats them."""

    method: str
    better: int
    same: int
    worse: int
    beats: int
    faced: int

    @property
    def compared(self) -> int:
        """Settings with a published value."""
        return self.better + self.same + self.worse

    @property
    def words(self) -> str:
        """The tally as a sentence."""
        parts = [words for words in (self._against_published(), self._against_baselines()) if words]
        text = "; ".join(parts) or "nothing to compare with"
        return f"{text[:1].upper()}{text[1:]}."

    def _against_published(self) -> str:
        counts = {PHRASES[BETTER]: self.better, PHRASES[SAME]: self.same, PHRASES[WORSE]: self.worse}
        found = [(phrase, count) for phrase, count in counts.items() if count]
        if self.compared < 2:
            return "".join(phrase for phrase, _ in found)
        first, *others = [f"{phrase} in {count}" for phrase, count in found]
        return f"{first} of {self.compared} settings" + "".join(f", {words}" for words in others)

    def _against_baselines(self) -> str:
        if self.faced > 1:
            return f"beats every trivial baseline in {self.beats} of {self.faced}"
        return {0: "", 1: BEATS if self.beats else "does not beat the baselines"}[self.faced]


def tallies(sweep: Sweep) -> list[Tally]:
    """Count the verdicts of each method that is not a baseline."""
    found = []
    for method in sweep.methods:
        if kind_of(method) == "baseline":
            continue
        own = [row for row in sweep.rows if row["method"] == method and row["kind"] == "method"]
        published = Counter(row["against_published"] for row in own)
        faced = Counter(row["against_baselines"] for row in own)
        counts = (published[BETTER], published[SAME], published[WORSE])
        found.append(Tally(method, *counts, beats=faced[BEATS], faced=faced[BEATS] + faced[BEATS_NOT]))
    return found


def short(sweep: Sweep) -> Section | None:
    """Say what came out in a sentence per method."""
    found = tallies(sweep)
    if not found:
        return None
    lead = f"By {label_of(sweep.main)}, the main metric; means over seeds."
    return Section("short", "In short", render("short.html", tallies=found), lead)


# -- the paper's table -------------------------------------------------------------------


def glance(sweep: Sweep) -> Section | None:
    """Set the main metric of all methods side by side, a row per setting."""
    if not sweep.done or len(sweep.settings) < 2:  # one setting is one line, which the other table has
        return None
    main = sweep.main
    digits = digits_for([row[f"{main}_mean"] for row in sweep.rows])
    columns = [Column("Setting", name=True)]
    places: list[tuple[str, str]] = []
    for kind, band, names in (
        ("method", "This run", [m for m in sweep.methods if kind_of(m) == "method"]),
        ("published", "Published", sweep.published),
        ("baseline", "Trivial baselines", [m for m in sweep.methods if kind_of(m) == "baseline"]),
    ):
        hidden = kind if kind == "baseline" else ""
        columns += [Column(as_printed(name), "number", hidden, band, falling=main not in LOWER) for name in names]
        places += [(kind, name) for name in names]
    rows = []
    for i, setting in enumerate(sweep.settings):
        own = {(row["kind"], row["method"]): row for row in sweep.rows if row["setting"] == setting}
        best = _best([row[f"{main}_mean"] for (kind, _), row in own.items() if kind != "published"], main)
        entries = [_glance_entry(own.get(place), main, digits, best) for place in places]
        rows.append(Row([Entry(setting, float(i), "group"), *entries], setting))
    caption = f"{label_of(main)}, mean ± sd over seeds"
    table = Table(caption, columns, rows, filtered=FILTER, switch=SWITCH, sorted_by=0)
    return Section("table", "The table", Markup("{}{}").format(table.html(), _key(sweep)), caption + ".")


def _best(means: list[float], metric: str) -> float:
    finite = [m for m in means if math.isfinite(m)]
    return math.nan if not finite else min(finite) if metric in LOWER else max(finite)


def _glance_entry(row: Mapping[str, Any] | None, metric: str, digits: int, best: float) -> Entry:
    if row is None:
        return Entry("", None, "quiet")
    mean, sd, sign = row[f"{metric}_mean"], row[f"{metric}_sd"], Markup("")
    if row["kind"] == "published":
        return Entry(set_spread(printed(mean, digits, ""), printed(sd, digits, "")), mean)
    if not math.isfinite(mean):
        return Entry("failed" if row["failed"] else "–", None, "quiet")
    marks = ["best" if mean == best else "", "quiet" if row["kind"] == "baseline" and mean != best else ""]
    verdict = row["against_published"]
    if verdict and row["kind"] == "method":
        sign = Markup("{}{}").format(
            tag("span", SIGNS[verdict], class_=f"sign {MARKS[verdict] or 'quiet'}", aria_hidden="true"),
            tag("span", f" {PHRASES[verdict]}", class_="aside"),
        )
        marks.append(MARKS[verdict])
    dagger = ""
    if row["against_baselines"] == BEATS_NOT:
        words = tag("span", "does not beat the baselines ", class_="aside")
        dagger = Markup("{}{}").format(tag("span", DAGGER, class_="sign", aria_hidden="true"), words)
    text = Markup("{}{}{}").format(dagger, set_spread(number(mean, digits), number(sd, digits)), sign)
    return Entry(text, mean, " ".join(filter(None, marks)))


def _key(sweep: Sweep) -> Markup:
    items: list[Markup] = []
    if any(row["against_published"] for row in sweep.rows):
        items += [tag("span", f"{SIGNS[v]} {PHRASES[v]}", class_=MARKS[v] or None) for v in (BETTER, SAME, WORSE)]
    if any(row["against_baselines"] for row in sweep.rows):
        items.append(tag("span", f"{DAGGER} does not beat the best trivial baseline"))
    items.append(Markup("<span><strong>bold</strong> best of this run</span>"))
    return tag("p", *items, class_="key")


# -- every number ------------------------------------------------------------------------


def numbers(sweep: Sweep) -> Section | None:
    """Set all metrics, a row per setting and method."""
    if not sweep.rows:
        return None
    main, others = sweep.main, _others(sweep)
    digits = {m: digits_for([row[f"{m}_mean"] for row in sweep.rows]) for m in sweep.recipe.metrics}
    columns = [
        Column("Setting"),
        Column("Method", name=True),
        Column(_with_axis(label_of(main), sweep.scale), "plot", sortable=False),
        Column(label_of(main), "number", falling=main not in LOWER),
        Column("worst", "number", falling=main not in LOWER),
        Column("against published"),
        Column("against baselines"),
        *(Column(label_of(metric), "number", falling=metric not in LOWER) for metric in others),
        Column("seeds", "number"),
    ]
    order = ("method", "published", "baseline")
    ordered = sorted(sweep.rows, key=lambda row: (sweep.settings.index(row["setting"]), order.index(row["kind"])))
    rows = [_numbers_row(sweep, row, digits) for row in ordered]
    caption = "All metrics of every method on every setting, mean ± sd over seeds"
    table = Table(caption, columns, rows, tall=True, filtered=FILTER, switch=SWITCH, sorted_by=0)
    drawn = f"The drawing shows {label_of(main)} with its sd; the dotted line is the published value compared with."
    lead = Markup("{}. {} Every single run is in results.csv.").format(caption, tag("span", drawn, class_="roomy"))
    return Section("numbers", "All numbers", table.html(), lead)


def _with_axis(title: str, scale: Scale) -> Markup:
    return tag("span", title, class_="aside") + strip_axis(scale)


def _numbers_row(sweep: Sweep, row: Mapping[str, Any], digits: Mapping[str, int]) -> Row:
    main, kind, method = sweep.main, row["kind"], row["method"]
    mean, sd, worst = (row[f"{main}_{what}"] for what in ("mean", "sd", "worst"))
    write = printed if kind == "published" else number
    badge = "" if kind == "method" else tag("span", kind, class_="badge")
    seeds = int(row[f"{main}_n"])
    count = "" if kind == "published" else f"{seeds}" + (f" + {row['failed']} failed" if row["failed"] else "")
    drawn = strip(
        sweep.scale, look=sweep.mark_style(kind, method), value=mean, spread=sd, reference=_reference(sweep, row)
    )
    return Row(
        [
            Entry(row["setting"], float(sweep.settings.index(row["setting"])), "group"),
            Entry(Markup("{}{}").format(as_printed(method), badge), as_printed(method)),
            Entry(drawn, mean),
            _metric_entry(row, main, write, digits[main]),
            Entry(number(worst, digits[main]) if math.isfinite(worst) else "", worst),
            _verdict_entry(row),
            _baselines_entry(row["against_baselines"]),
            *(_metric_entry(row, m, write, digits[m]) for m in _others(sweep)),
            Entry(count, float(seeds) if kind != "published" else None, "worse" if row["failed"] else ""),
        ],
        row["setting"],
        kind,
    )


def _others(sweep: Sweep) -> list[str]:
    """Return the metrics after the main one that have a value anywhere."""
    return [m for m in sweep.recipe.metrics[1:] if any(math.isfinite(row[f"{m}_mean"]) for row in sweep.rows)]


def _metric_entry(row: Mapping[str, Any], metric: str, write: Callable[[float, int], str], digits: int) -> Entry:
    mean, sd = row[f"{metric}_mean"], row[f"{metric}_sd"]
    return Entry(set_spread(write(mean, digits), write(sd, digits)) if math.isfinite(mean) else "", mean)


def _reference(sweep: Sweep, row: Mapping[str, Any]) -> float:
    """Return the published value that a row is compared with."""
    for other in sweep.rows:
        if (other["kind"], other["setting"], other["method"]) == ("published", row["setting"], row["against"]):
            return float(other[f"{sweep.main}_mean"])
    return math.nan


def _verdict_entry(row: Mapping[str, Any]) -> Entry:
    verdict, against = row["against_published"], row["against"]
    if not verdict:
        return Entry("", None)
    named = "" if as_printed(against) == row["method"] else tag("span", f" ({as_printed(against)})", class_="quiet")
    words = Markup("{} {}{}").format(tag("span", SIGNS[verdict], class_="sign", aria_hidden="true"), verdict, named)
    mark = MARKS[verdict] if row["kind"] == "method" else "quiet"
    return Entry(words, float((BETTER, SAME, WORSE).index(verdict)), mark)


def _baselines_entry(verdict: str) -> Entry:
    if not verdict:
        return Entry("", None)
    return Entry("✓ beats them", 0.0, "better") if verdict == BEATS else Entry("✗ does not", 1.0, "worse")


# -- run times, certificates, failures ---------------------------------------------------


def times(sweep: Sweep) -> Section | None:
    """Draw the seconds of all cells, a row per method and device."""
    groups: dict[tuple[str, str], list[float]] = {}
    for method in sweep.methods:
        for r in sweep.done:
            if r.cell.method == method and math.isfinite(seconds := value_of(r, "seconds")):
                groups.setdefault((method, r.device), []).append(seconds)
    every = [s for found in groups.values() for s in found]
    if not every:
        return None
    log = min(every) > 0 and max(every) > 20 * min(every)
    scale = Scale.logarithmic(every) if log else Scale.linear([0.0, *every])
    columns = [
        Column("Method", name=True),
        Column(_with_axis("seconds", scale), "plot", sortable=False),
        *(Column(name, "number") for name in ("median s", "longest s", "cells")),
        Column("Device"),
    ]
    rows = []
    for (method, device), found in groups.items():
        middle, kind = median(found), kind_of(method)
        words = f"median {middle:.3g} s, {min(found):.3g} to {max(found):.3g} s"
        drawn = strip(scale, look=sweep.mark_style(kind, method), value=middle, others=found, words=words)
        entries = [Entry(method, method), Entry(drawn, middle), Entry(_seconds(middle), middle)]
        entries += [Entry(_seconds(max(found)), max(found)), Entry(str(len(found)), float(len(found)))]
        rows.append(Row([*entries, Entry(device, device)], tag=kind))
    lead = f"Seconds per cell{', on a logarithmic scale' * log}; a stroke per cell, the marker at the median."
    total = f" {_duration(sum(r.seconds for r in sweep.runs))} in all, cells added up."
    return Section("times", "Run times", Table("Seconds per cell", columns, rows).html(), lead + total)


def _seconds(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u2009") if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} seconds"


def failures(sweep: Sweep) -> Section | None:
    """List the cells that failed, and why."""
    if not sweep.failed:
        return None
    columns = [Column("Setting"), Column("Method", name=True), Column("seed", "number"), Column("Error")]
    rows = []
    for r in sorted(sweep.failed, key=lambda r: sweep.settings.index(r.cell.setting)):
        place = float(sweep.settings.index(r.cell.setting))
        entries = [Entry(r.cell.setting, place, "group"), Entry(r.cell.method, r.cell.method)]
        entries += [Entry(str(r.cell.seed), float(r.cell.seed)), Entry(r.error or "no message", r.error, "wrap mono")]
        rows.append(Row(entries, r.cell.setting, kind_of(r.cell.method)))
    body = Table("Cells that failed", columns, rows, sorted_by=0).html()
    return Section("failures", "Failures", body, "These cells ended in an error and are in no mean above.")


_LEVELS = tuple(str(level) for level in Level)
_VERDICTS = {"holds": ("✓", "holds"), "fails": ("✗", "fails")}


def certificates(sweep: Sweep) -> Section | None:
    """Count the levels of the certificates, and give the checks of the first seed in words."""
    runs = [r for r in sweep.done if r.certificate]
    if not runs:
        return None
    methods = [m for m in sweep.methods if any(r.cell.method == m for r in runs)]
    columns = [Column("Setting", name=True), *(Column(m) for m in methods)]
    rows, details = [], []
    for i, setting in enumerate(sweep.settings):
        own = {m: [r for r in runs if (r.cell.setting, r.cell.method) == (setting, m)] for m in methods}
        levels = {m: _levels([r.certificate for r in own[m]]) for m in methods}
        if any(levels.values()):
            entries = [Entry(setting, float(i), "group"), *(_level_entry(levels[m]) for m in methods)]
            rows.append(Row(entries, setting))
        firsts = [(m, sweep.first(setting, m)) for m in methods]
        fits = [_fit(m, r.certificate) for m, r in firsts if r is not None and r.certificate]
        if fits:
            details.append((setting, fits))
    table = Table("Certificates: what is identified, and for how many seeds", columns, rows, sorted_by=0).html()
    lead = (
        "How far the latents of a fit are identified, and for how many seeds. From weakest to strongest: none, ATwC "
        "(affine within each component), AT (one affine map), blocks, PS (order, sign, scale and shift)."
    )
    return Section("certificates", "Certificates", render("certificates.html", table=table, settings=details), lead)


def _levels(found: list[Mapping[str, Any] | None]) -> Counter[str]:
    return Counter(str(c.get("level", "not said")) for c in found if c)


def _level_entry(levels: Counter[str]) -> Entry:
    if not levels:
        return Entry("–", None, "quiet")
    order = sorted(levels, key=_strength, reverse=True)
    mean = sum(_strength(level) * n for level, n in levels.items()) / levels.total()
    return Entry(", ".join(f"{level} × {levels[level]}" for level in order), mean)


def _strength(level: str) -> float:
    return float(_LEVELS.index(level)) if level in _LEVELS else -1.0


def _fit(method: str, certificate: Mapping[str, Any]) -> dict[str, Any]:
    certificate = rename_certificate(certificate)
    level = str(certificate.get("level", "not said"))
    best = certificate.get("if_undecided_hold")
    words = [_sentence(certificate.get("meaning"))]
    if best is not None and str(best) != level:
        words.append(f"At best {best}, if everything that cannot be told holds.")
    blocks = certificate.get("blocks") or []
    if level == str(Level.BLOCKS) and blocks:
        words.append("Blocks: " + ", ".join("{" + ", ".join(map(str, block)) + "}" for block in blocks) + ".")
    return {
        "method": method,
        "level": level,
        "theorem": certificate.get("theorem") or "",
        "words": " ".join(filter(None, words)),
        "checks": [_check(check) for check in certificate["checks"]],
    }


def _sentence(words: Any) -> str:
    text = str(words or "")
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") if text else ""


def _check(check: Mapping[str, Any]) -> dict[str, str]:
    verdict = str(check.get("verdict", "inconclusive"))
    sign, mark = _VERDICTS.get(verdict, ("?", "soft"))
    words = str(check.get("words") or check.get("sentence") or "")
    return {"name": str(check.get("name", "")), "verdict": verdict, "sign": sign, "mark": mark, "words": words}
