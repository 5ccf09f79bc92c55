"""Which system is faster than which, according to the papers: by a table with both, else by their text."""

from __future__ import annotations

from dataclasses import dataclass

from lab.papers import paper_of, ratio


@dataclass(frozen=True)
class Ordering:
    """The papers measured ``faster`` to be ``least`` to ``most`` times as fast as ``slower``.

    Without ``least``, they say "up to" the most. A least below 1 means that ``slower`` was faster in some case.
    """

    faster: str
    slower: str
    least: float | None
    most: float
    where: str
    oblivious: bool = False  # only for oblivious forests, to which the other orderings do not apply

    def told(self, us: dict[str, float]) -> str | None:
        """How these times (microseconds per document) compare; None if one of the two is missing."""
        if self.faster not in us or self.slower not in us or self.oblivious != ("OBLIVIOUS" in us):
            return None
        ratio = us[self.slower] / us[self.faster]
        holds = ratio > 1 if self.least is None else ratio >= self.least
        verdict = "holds" if holds else "holds, by less" if ratio > 1 else "does not hold"
        bounds = f"up to {self.most:g}" if self.least is None else f"{self.least:g} to {self.most:g}"
        return f"{self.faster} over {self.slower}: {ratio:.2f} times ({verdict}; {bounds} in {self.where})"


#: Names in the papers' tables of gpuqs's engines, and of the order whose rows are named after their best block sizes.
ROWS = {"qs": "QS", "vqs": "vQS (AVX2)", "bwqs": "BWQS", "qs_oblivious": "QS-Omega", "DSD": "DSD2"}


def of_table(faster: str, slower: str, table: str, where: str, oblivious: bool = False) -> Ordering:
    """An ordering whose bounds are the smallest and largest ratio in a table."""
    values = paper_of(table)["values"]
    ahead, behind = (ROWS.get(name, name) for name in (faster, slower))
    ratios = [ratio(values, panel, ahead, x, behind) for panel, rows in values.items() for x in rows[ahead]]
    found = [times for times in ratios if times is not None]
    return Ordering(faster, slower, round(min(found), 2), round(max(found), 2), where, oblivious)


ORDERINGS = (
    *(
        of_table("qs", name, "002-III", "paper 002, Table III")
        for name in ("VPRED", "IF-THEN-ELSE", "CONDOP", "STRUCT+")
    ),
    of_table("vqs", "qs", "001-1", "paper 001, Table 1, AVX2"),
    *(of_table("bwqs", name, "002-VI", "paper 002, Table VI, at 20,000 trees") for name in ("qs", "VPRED")),
    Ordering("VPRED", "PRED", 1.25, 1.7, "paper 002, section 2"),
    Ordering("SDSD", "DOT", None, 7.2, "paper 003, section 1"),
    Ordering("SDSD", "SOT", None, 3.45, "paper 003, section 1"),
    Ordering("SDSD", "VPRED", None, 1.5, "paper 003, section 1"),
    Ordering("Block-VPRED", "VPRED", None, 2.0, "paper 003, section 1"),
    of_table("DSD", "DS", "004-4", "paper 004, Table 4, DSD2"),
    *(of_table("OBLIVIOUS", name, "002-IV", "paper 002, Table IV", True) for name in ("VPRED", "STRUCT+")),
    of_table("qs_oblivious", "OBLIVIOUS", "002-IV", "paper 002, Table IV", True),
)
