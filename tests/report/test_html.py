import base64
import hashlib
import re

import pytest
from markupsafe import Markup

from identifiable.report.html import Fact, Page, Section, render, to_the_minute
from page_reader import Reader

PAGE = Page(
    "A & B",
    [Section("one", "<One>", Markup("<b>bold</b>"), "lead < more"), Section("two", "Two", Markup(""))],
    notices=["look < here"],
    facts=[Fact("Command", "run <it>", command=True), Fact("Runs", "3 failed", alert=True)],
)


def test_text_is_escaped_and_markup_is_kept():
    html = PAGE.html()
    assert "<title>A &amp; B</title>" in html
    assert "<b>bold</b>" in html
    for text in ("&lt;One&gt;", "lead &lt; more", "look &lt; here", "<code>run &lt;it&gt;</code>"):
        assert text in html
    assert Reader(html).count("dd", **{"class": "alert"}) == 1
    assert [a["href"] for a in Reader(html).all("a")] == ["#main", "#one", "#two"]


def test_only_the_script_of_the_page_may_run(tmp_path):
    html = PAGE.write(tmp_path / "page.html").read_text(encoding="utf-8")
    assert html == PAGE.html()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_a_template_with_a_missing_value_is_refused():
    from jinja2 import UndefinedError

    assert "a &lt; b" in render("reading_fit.html", stable="a < b", doubtful=0, positions=False)
    with pytest.raises(UndefinedError):
        render("reading_fit.html", stable=1)


def test_moments_are_written_to_the_minute():
    assert to_the_minute("2026-05-03T10:20:30+00:00") == "2026-05-03 10:20 UTC"
    assert to_the_minute("yesterday") == "yesterday"
