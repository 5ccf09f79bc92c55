"""The systems that the papers compare QuickScorer and cache blocking with, built for the bench alone.

`registry` lists them, `program` makes one ready for a forest, `check` compares them with gpuqs's reference. Every
system adds a document's trees up in their order, so that scores have the same bits in all.
"""
