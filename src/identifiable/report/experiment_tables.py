"""The tables of an experiment's report: values that the page, the Markdown file and the terminal write."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from identifiable.experiments import summary
from identifiable.experiments.recipe import Recipe, Record
from identifiable.experiments.summary import BEATS, BEATS_NOT, BETTER, KINDS, SAME, WORSE, Kind, as_printed, kind_of
from identifiable.report.certificate_text import certificate_in_words
from identifiable.report.html import Section, render
from identifiable.report.svg import Scale, strip, strip_axis, tag
from identifiable.report.sweep import Sweep, label_of
from identifiable.report.table import FIGURE_SPACE, Column, Entry, Row, Table, digits_for
from identifiable.theory.certificate import Level

if TYPE_CHECKING:
    from rich.table import Table as RichTable

SIGNS = {BETTER: "▲", SAME: "=", WORSE: "▼"}
MARKS = {BETTER: "better", SAME: "", WORSE: "worse"}
PHRASES = {BETTER: "better than published", SAME: "as published", WORSE: "worse than published"}
BANDS: dict[Kind, str] = {
    "method": "This library",
    "published": "Published",
    "reference": "Given the truth",
    "baseline": "Trivial baselines",
}
FILTER, SWITCH = "Filter settings", "Hide baselines"
DAGGER = "†"
LOG_FROM = 20  # ratio of the longest to the shortest run time above which their scale is logarithmic


# -- summary -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """In how many settings a method is better than published, as published or worse, and beats the baselines.

    Attributes
    ----------
    beats, faced : settings in which the method beats every trivial baseline, and settings with baselines.
    """

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
        counts = {PHRASES[BETTER]: self.better, PHRASES[SAME]: self.same, PHRASES[WORSE]: self.worse}
        parts = [", ".join(f"{words} in {n} of {self.compared} settings" for words, n in counts.items() if n)]
        parts += [f"beats every trivial baseline in {self.beats} of {self.faced} settings"] if self.faced else []
        text = "; ".join(filter(None, parts)) or "nothing to compare with"
        return f"{text[:1].upper()}{text[1:]}."


def tallies(sweep: Sweep) -> list[Tally]:
    """Count the verdicts of each method that is not a baseline."""
    found = []
    for method in (m for m in sweep.methods if kind_of(m) == "method"):
        own = [row for row in sweep.rows if (row["kind"], row["method"]) == ("method", method)]
        published = Counter(row["against_published"] for row in own)
        faced = Counter(row["against_baselines"] for row in own)
        counts = (published[BETTER], published[SAME], published[WORSE])
        found.append(Tally(method, *counts, beats=faced[BEATS], faced=faced[BEATS] + faced[BEATS_NOT]))
    return found


def short(sweep: Sweep) -> Section | None:
    """Summarise each method in a sentence."""
    found = tallies(sweep)
    if not found:
        return None
    lead = f"By {label_of(sweep.main)}, the main metric; means over seeds."
    return Section("short", "Summary", render("short.html", tallies=found), lead)


def tables_of(sweep: Sweep) -> dict[str, Table]:
    """Return a comparison of methods for each metric, or all results if there is a single setting."""
    if len(sweep.settings) == 1:
        return {sweep.settings[0]: all_results(sweep)}
    metrics = [m for m in sweep.recipe.metrics if any(map(math.isfinite, sweep.means(m)))]
    return {label_of(metric): comparison(sweep, metric) for metric in metrics}


# -- settings by methods -----------------------------------------------------------------


def glance(sweep: Sweep) -> Section | None:
    """Compare all methods by the main metric; a single setting is left to the table of all results."""
    if not sweep.done or len(sweep.settings) < 2:
        return None
    table = comparison(sweep, sweep.main)
    body = Markup("{}{}").format(table.html(), tag("p", *key(sweep), class_="key"))
    return Section("table", "Comparison of methods", body, table.caption + ".")


def comparison(sweep: Sweep, metric: str) -> Table:
    """Return the table of one metric: a row per setting, a column per method."""
    measured = {(row["kind"], row["method"]) for row in sweep.rows if math.isfinite(row[f"{metric}_mean"])}
    methods = [column for column in sweep.columns if metric == sweep.main or column in measured]
    columns = [Column("Setting", name=True)]
    for kind, name in methods:
        hidden = "baseline" if kind == "baseline" else ""
        title, text = as_printed(name), _plain_name(kind, name)
        columns.append(Column(title, "number", hidden, BANDS[kind], falling=metric not in summary.LOWER, text=text))
    digits = digits_for(sweep.means(metric))
    rows = []
    for i, setting in enumerate(sweep.settings):
        own = {(row["kind"], row["method"]): row for row in sweep.rows if row["setting"] == setting}
        means = [row[f"{metric}_mean"] for (kind, _), row in own.items() if kind in ("method", "baseline")]
        best = max((m for m in means if math.isfinite(m)), key=lambda m: summary.goodness(m, metric), default=math.nan)
        entries = [_mean_entry(sweep, own.get(column), metric, digits, best) for column in methods]
        rows.append(Row([Entry(setting, float(i), "group"), *entries], setting))
    caption = f"{label_of(metric)}, mean ± sd over seeds"
    return Table(caption, columns, rows, filtered=FILTER, switch=SWITCH, sorted_by=0)


def _plain_name(kind: Kind, method: str) -> str:
    return f"published: {as_printed(method)}" if kind == "published" else method


def _mean_entry(sweep: Sweep, row: Mapping[str, Any] | None, metric: str, digits: int, best: float) -> Entry:
    """Write mean ± sd of a method; on the main metric with signs for the two comparisons, the best one bold."""
    if row is None:
        return Entry("", None, "quiet")
    mean, kind = row[f"{metric}_mean"], row["kind"]
    if kind != "published" and not math.isfinite(mean):
        return Entry("failed" if row["failed"] else "–", None, "quiet")
    entry = _spread_entry(row, metric, digits)
    if kind == "published":  # these have separate columns, which need no padding
        return replace(entry, content=entry.content.replace(FIGURE_SPACE, ""))
    if metric != sweep.main:
        return entry
    before, after, verdict = Markup(""), Markup(""), row["against_published"]
    marks = ["best" if mean == best else "quiet" if kind == "baseline" else ""]
    if verdict and kind == "method":
        after = _sign(SIGNS[verdict], f" {PHRASES[verdict]}", MARKS[verdict] or "quiet")
        marks.append(MARKS[verdict])
    if row["against_baselines"] == BEATS_NOT:
        before = _sign(DAGGER, "does not beat the baselines ")
    text = f"{DAGGER * bool(before)}{entry.plain}{' ' + SIGNS[verdict] if after else ''}"
    content = Markup("{}{}{}").format(before, entry.content, after)
    return Entry(content, mean, " ".join(filter(None, marks)), text)


def _spread_entry(row: Mapping[str, Any], metric: str, digits: int) -> Entry:
    mean, sd = row[f"{metric}_mean"], row[f"{metric}_sd"]
    return Entry.spread(mean, sd, digits, published=row["kind"] == "published") if math.isfinite(mean) else Entry("")


def _sign(sign: str, words: str, mark: str = "") -> Markup:
    """Draw a sign; screen readers read the words."""
    shown = tag("span", sign, class_=f"sign {mark}".strip(), aria_hidden="true")
    return Markup("{}{}").format(shown, tag("span", words, class_="aside"))


def key(sweep: Sweep) -> list[Markup]:
    """Return what the signs of a comparison mean."""
    items = []
    if any(row["against_published"] for row in sweep.rows):
        items += [tag("span", f"{SIGNS[v]} {PHRASES[v]}", class_=MARKS[v] or None) for v in (BETTER, SAME, WORSE)]
    if any(row["against_baselines"] for row in sweep.rows):
        items.append(tag("span", f"{DAGGER} does not beat the best trivial baseline"))
    return [*items, Markup("<span><strong>bold</strong>: best mean of the setting</span>")]


# -- all results -------------------------------------------------------------------------


def numbers(sweep: Sweep) -> Section | None:
    """Show all metrics."""
    if not sweep.rows:
        return None
    table = all_results(sweep)
    drawn = f"The plot shows {label_of(sweep.main)} with its sd; the dotted line is the published value compared with."
    lead = Markup("{}. {} Single runs are in results.csv.").format(table.caption, tag("span", drawn, class_="roomy"))
    return Section("numbers", "All results", table.html(), lead)


def all_results(sweep: Sweep) -> Table:
    """Return the table of all metrics: a row per setting and method."""
    main = sweep.main
    others = [m for m in sweep.recipe.metrics[1:] if any(map(math.isfinite, sweep.means(m)))]
    digits = {m: digits_for(sweep.means(m)) for m in (main, *others)}
    columns = [
        Column("Setting"),
        Column("Method", name=True),
        Column(_with_axis(label_of(main), sweep.scale), "plot", sortable=False),
        Column(label_of(main), "number", falling=main not in summary.LOWER),
        Column("worst", "number", falling=main not in summary.LOWER),
        Column("against published"),
        Column("against baselines"),
        *(Column(label_of(metric), "number", falling=metric not in summary.LOWER) for metric in others),
        Column("seeds", "number"),
    ]
    ordered = sorted(sweep.rows, key=lambda row: (sweep.settings.index(row["setting"]), KINDS.index(row["kind"])))
    rows = [_results_row(sweep, row, digits) for row in ordered]
    caption = "All metrics of every method on every setting, mean ± sd over seeds"
    return Table(caption, columns, rows, tall=True, filtered=FILTER, switch=SWITCH, sorted_by=0)


def _with_axis(title: str, scale: Scale) -> Markup:
    return tag("span", title, class_="aside") + strip_axis(scale)


def _results_row(sweep: Sweep, row: Mapping[str, Any], digits: Mapping[str, int]) -> Row:
    (main, *others), kind, setting = digits, row["kind"], row["setting"]
    mean, sd, worst = (row[f"{main}_{what}"] for what in ("mean", "sd", "worst"))
    name, badge = as_printed(row["method"]), "" if kind == "method" else tag("span", kind, class_="badge")
    style = sweep.mark_style(kind, row["method"])
    seeds = int(row[f"{main}_n"])
    failed = f" + {row['failed']} failed" if row["failed"] else ""
    entries = [
        Entry(setting, float(sweep.settings.index(setting)), "group"),
        Entry(Markup("{}{}").format(name, badge), name, text=_plain_name(kind, row["method"])),
        Entry(strip(sweep.scale, look=style, value=mean, spread=sd, reference=_reference(sweep, row)), mean),
        _spread_entry(row, main, digits[main]),
        Entry.number(worst, digits[main]) if math.isfinite(worst) else Entry(""),
        _published_entry(row),
        _baselines_entry(row["against_baselines"]),
        *(_spread_entry(row, metric, digits[metric]) for metric in others),
        Entry("") if kind == "published" else Entry(f"{seeds}{failed}", float(seeds), "worse" if failed else ""),
    ]
    return Row(entries, setting, kind)


def _reference(sweep: Sweep, row: Mapping[str, Any]) -> float:
    """Return the published value that a row is compared with."""
    place = ("published", row["setting"], row["against"])
    found = (r for r in sweep.rows if (r["kind"], r["setting"], r["method"]) == place)
    return next((float(r[f"{sweep.main}_mean"]) for r in found), math.nan)


def _published_entry(row: Mapping[str, Any]) -> Entry:
    verdict, against = row["against_published"], as_printed(row["against"])
    if not verdict:
        return Entry("")
    named = "" if against == row["method"] else f" ({against})"
    sign = tag("span", SIGNS[verdict], class_="sign", aria_hidden="true")
    words = Markup("{} {}{}").format(sign, verdict, tag("span", named, class_="quiet") if named else "")
    mark = MARKS[verdict] if row["kind"] == "method" else "quiet"
    return Entry(words, float((BETTER, SAME, WORSE).index(verdict)), mark, f"{SIGNS[verdict]} {verdict}{named}")


def _baselines_entry(verdict: str) -> Entry:
    beats, beats_not = Entry("✓ beats them", 0.0, "better"), Entry("✗ does not", 1.0, "worse")
    return {BEATS: beats, BEATS_NOT: beats_not}.get(verdict, Entry(""))


# -- run times, failures, certificates ---------------------------------------------------


def times(sweep: Sweep) -> Section | None:
    """Draw the run times of each method and device."""
    groups: dict[tuple[str, str], list[float]] = {}
    for r in sorted(sweep.done, key=lambda r: sweep.methods.index(r.run.method)):
        if math.isfinite(seconds := summary.value_of(r, "seconds")):
            groups.setdefault((r.run.method, r.device), []).append(seconds)
    every = [s for found in groups.values() for s in found]
    if not every:
        return None
    log = min(every) > 0 and max(every) > LOG_FROM * min(every)
    scale = Scale.logarithmic(every) if log else Scale.linear([0.0, *every])
    columns = [
        Column("Method", name=True),
        Column(_with_axis("seconds", scale), "plot", sortable=False),
        *(Column(name, "number") for name in ("median s", "longest s", "runs")),
        Column("Device"),
    ]
    rows = []
    for (method, device), found in groups.items():
        middle, kind = median(found), kind_of(method)
        words = f"median {middle:.3g} s, {min(found):.3g} to {max(found):.3g} s"
        drawn = strip(scale, look=sweep.mark_style(kind, method), value=middle, others=found, words=words)
        entries = [Entry(method, method), Entry(drawn, middle), *(_seconds(s) for s in (middle, max(found)))]
        rows.append(Row([*entries, Entry(str(len(found)), float(len(found))), Entry(device, device)], tag=kind))
    total = _duration(sum(r.seconds for r in sweep.runs))
    lead = (
        f"Seconds per run{', on a logarithmic scale' * log}; a tick per run, the marker at the median. Total over all "
        f"runs: {total}."
    )
    return Section("times", "Run times", Table("Seconds per run", columns, rows).html(), lead)


def _seconds(value: float) -> Entry:
    return Entry.number(value, 0 if value >= 100 else 1 if value >= 1 else 2)


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} seconds"


def failures(sweep: Sweep) -> Section | None:
    """List the runs that failed, with their errors."""
    if not sweep.failed:
        return None
    columns = [Column("Setting"), Column("Method", name=True), Column("seed", "number"), Column("Error")]
    rows = []
    for r in sorted(sweep.failed, key=lambda r: sweep.settings.index(r.run.setting)):
        place = float(sweep.settings.index(r.run.setting))
        entries = [Entry(r.run.setting, place, "group"), Entry(r.run.method, r.run.method)]
        entries += [Entry(str(r.run.seed), float(r.run.seed)), Entry(r.error or "no message", r.error, "wrap mono")]
        rows.append(Row(entries, r.run.setting, kind_of(r.run.method)))
    body = Table("Failed runs", columns, rows, sorted_by=0).html()
    return Section("failures", "Failures", body, "These runs ended in an error and are not part of any mean above.")


LEVELS = tuple(str(level) for level in Level)


def certificates(sweep: Sweep) -> Section | None:
    """Count the levels of the certificates, and show the assumptions for the first seed of each setting."""
    methods = [m for m in sweep.methods if any(r.certificate for r in sweep.done if r.run.method == m)]
    if not methods:
        return None
    rows, details = [], []
    for i, setting in enumerate(sweep.settings):
        own = {m: [r for r in sweep.of(setting, m) if r.certificate] for m in methods}
        if any(own.values()):
            entries = [Entry(setting, float(i), "group"), *(_level_entry(own[m]) for m in methods)]
            rows.append(Row(entries, setting))
            firsts = {m: found[0].certificate for m, found in own.items() if found}
            details.append((setting, [certificate_in_words(c) | {"method": m} for m, c in firsts.items() if c]))
    columns = [Column("Setting", name=True), *(Column(m) for m in methods)]
    table = Table("Certified level and number of seeds", columns, rows, sorted_by=0).html()
    lead = (
        "Certified level of identifiability and number of seeds. From weakest to strongest: none, ATwC (affine within "
        "each component), AT (one affine map), blocks, PS (order, sign, scale and shift)."
    )
    return Section("certificates", "Certificates", render("certificates.html", table=table, settings=details), lead)


def _level_entry(runs: list[Record]) -> Entry:
    if not runs:
        return Entry("–", None, "quiet")
    levels = Counter(str(r.certificate.get("level", "unknown")) for r in runs if r.certificate)
    order = sorted(levels, key=_strength, reverse=True)
    mean = sum(_strength(level) * count for level, count in levels.items()) / levels.total()
    return Entry(", ".join(f"{level} × {levels[level]}" for level in order), mean)


def _strength(level: str) -> float:
    return float(LEVELS.index(level)) if level in LEVELS else -1.0


def terminal_table(recipe: Recipe, records: Sequence[Record], caption: str) -> "RichTable":
    """Return the main table of the results for a terminal."""
    from rich.box import SIMPLE

    title = f"{recipe.name}: {recipe.title}"
    left: dict[str, object] = {"title_justify": "left", "caption_justify": "left", "box": SIMPLE, "padding": (0, 1)}
    table = next(iter(tables_of(Sweep(recipe, records)).values()), Table("", [], []))
    return table.terminal(title=title, caption=caption, **left)
