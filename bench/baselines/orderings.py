"""Who is faster than whom, as the papers say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ordering:
    """The papers measured ``faster`` to be that many times as fast as ``slower``, from least to most."""

    faster: str
    slower: str
    least: float
    most: float
    where: str
    oblivious: bool = False  # of oblivious forests, on which the others say nothing

    def told(self, us: dict[str, float]) -> str | None:
        """What these figures (microseconds a document) say; None where one is not among them."""
        if self.faster not in us or self.slower not in us or self.oblivious != ("OBLIVIOUS" in us):
            return None
        ratio = us[self.slower] / us[self.faster]
        verdict = "holds" if ratio >= self.least else "holds, by less" if ratio > 1 else "does not hold"
        return (
            f"{self.faster} over {self.slower}: {ratio:.2f} times ({verdict}; "
            f"{self.least:g} to {self.most:g} in {self.where})"
        )


ORDERINGS = (
    Ordering("qs", "VPRED", 1.9, 6.6, "paper 002, Table III"),
    Ordering("qs", "IF-THEN-ELSE", 2.3, 24.4, "paper 002, Table III"),
    Ordering("qs", "CONDOP", 2.3, 8.7, "paper 002, Table III"),
    Ordering("qs", "STRUCT+", 5.3, 40.7, "paper 002, Table III"),
    Ordering("vqs", "qs", 1.3, 3.2, "paper 001, Table 1, AVX2"),
    Ordering("bwqs", "qs", 1.3, 1.3, "paper 002, Table VI, at 20,000 trees"),
    Ordering("bwqs", "VPRED", 5.1, 6.5, "paper 002, Table VI, at 20,000 trees"),
    Ordering("VPRED", "PRED", 1.25, 1.7, "paper 002, section 2"),
    Ordering("SDSD", "DOT", 1.0, 7.2, "paper 003, section 1"),
    Ordering("SDSD", "SOT", 1.0, 3.45, "paper 003, section 1"),
    Ordering("SDSD", "VPRED", 0.8, 1.5, "paper 003, section 1"),
    Ordering("Block-VPRED", "VPRED", 1.0, 2.0, "paper 003, section 1"),
    Ordering("DSD", "DS", 4.1, 6.6, "paper 004, Table 4"),
    Ordering("OBLIVIOUS", "VPRED", 0.3, 1.5, "paper 002, Table IV", oblivious=True),
    Ordering("OBLIVIOUS", "STRUCT+", 1.8, 9.2, "paper 002, Table IV", oblivious=True),
    Ordering("qs_oblivious", "OBLIVIOUS", 1.0, 3.6, "paper 002, Table IV", oblivious=True),
)
