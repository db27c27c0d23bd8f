"""A reader that sees a page as a browser does."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Collects the tags, the visible text, the scripts and the rows of tables (lists of text, heads included)."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.scripts, self.rows, self.inside = [], [], [], [], False
        self.feed(html)
        self.close()

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))
        if name == "tr":
            self.rows.append([])
        elif name in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    handle_startendtag = handle_starttag

    def handle_endtag(self, name):
        self.inside = self.inside and name not in ("td", "th")

    def handle_data(self, data):
        (self.scripts if self.tags and self.tags[-1][0] == "script" else self.text).append(data)
        if self.inside:
            self.rows[-1][-1] += data

    def all(self, name, **wanted):
        return [a for n, a in self.tags if n == name and all(a.get(k) == v for k, v in wanted.items())]

    def count(self, name, **wanted):
        return len(self.all(name, **wanted))

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())
