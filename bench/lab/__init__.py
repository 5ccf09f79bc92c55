"""The papers' tables and figures, reproduced: `tables` says what each holds, `timing` and `counting` measure it.

Every result, a table's or a figure's, has one form, ours and the paper's alike: panel -> system -> x -> value.
"""
