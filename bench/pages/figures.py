"""Formatting of figures, and finding them in a text."""

from __future__ import annotations

import re
import textwrap

Table = list[list[str]]
#: Columns of a line of prose.
LINE = 125


def figure(value: float) -> str:
    """A measured number with about three digits."""
    if value >= 1_000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def share(part: float) -> str:
    return f"{part * 100:.0f} %"


def table(head: list[str], rows: Table) -> list[str]:
    """Lines of Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def paragraph(text: str) -> list[str]:
    """Prose wrapped to the pages' line length, followed by a blank line."""
    return [*wrapped(text), ""]


def wrapped(text: str) -> list[str]:
    """Prose or a list item wrapped to the pages' line length; links are not broken."""
    whole = re.sub(r"\[[^\]]*\]\([^)]*\)", lambda link: link[0].replace(" ", "\0"), text)
    indent = "  " if text.startswith("- ") else ""
    lines = textwrap.wrap(whole, LINE, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def listed(words: list[str]) -> str:
    """"a, b and c"."""
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = r"(?:us|µs|μs|ns|ms|s|(?:nano|micro|milli)?sec(?:ond)?s?|min(?:ute)?s?|GHz|uJ|µJ)"
_WORD = (
    r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|seventy|"
    r"eighty|ninety|hundred|thousand)"
)
_PART = r"(?:half|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|twentieth|hundredth|thousandth)"
#: Matches figures of speed: times and units of time, ratios, shares, rates; in digits or in words.
SPEED = re.compile(
    rf"(?<![\w.])(?:{_NUMBER}, )*(?:{_NUMBER} (?:and|or|to) )?{_NUMBER}[ -]?{_UNIT}\b"
    rf"|(?<![\w.]){_NUMBER}[ -]?(?:times\b|fold\b|x\b(?! ?\d)|×(?! ?\d))"
    rf"|(?<![\w.]){_NUMBER} ?(?:%|percent\b)"
    rf"|(?<![\w.]){_NUMBER}(?: (?:thousand|million|billion)|[kMG])? ?(?:documents|docs|rows|queries|scores)"
    r" ?(?:an?|per|each|every|/) ?(?:s|sec|second|minute|hour)\b"
    rf"|\b(?:documents|docs|rows|queries|scores) ?(?:/|per) ?(?:s|sec|second|minute|hour)\b"
    rf"|\b(?:by|of) a factor of (?:{_NUMBER}|{_WORD})|\bfactors? (?:of )?{_NUMBER}"
    rf"|\bspeed-?ups? (?:of|by|is|was) (?:{_NUMBER}|{_WORD})"
    rf"|\b{_WORD} times\b|\b{_WORD}[ -]?fold\b|\b(?:twice|thrice) (?:as|the)\b|\bhalf the time\b"
    rf"|\b(?:an?|one|two|three)[ -]{_PART}s? (?:of|as)\b",
    re.IGNORECASE,
)
#: Matches a table cell that holds only a number, as times in tables do.
_CELL = re.compile(rf"^(?:\*\*)?{_NUMBER}(?:\*\*)?(?: \([^)]*\)| : {_NUMBER})?$")


def speeds(text: str) -> list[str]:
    """Every figure of speed in a Markdown text; the first line and column of tables only label figures."""
    found = SPEED.findall(text)
    lines = text.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if line.startswith("|") and not below.startswith(("| ---", "|---")):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found += [cell for cell in cells[1:] if _CELL.match(cell)]
    return found
