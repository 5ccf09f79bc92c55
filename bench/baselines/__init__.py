"""The systems that the papers compare with QuickScorer and cache blocking, built only for the bench.

`registry` lists them, `program` prepares one for a forest, `check` compares them with gpuqs's reference. Every
system sums a document's trees in order, so that all give the same bits.
"""
