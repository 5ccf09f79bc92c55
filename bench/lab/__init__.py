"""The papers' tables and figures, reproduced: `tables` says what each holds, `timing` and `counting` measure it.

All results, of tables and figures, ours and the papers', have the same form: panel -> system -> x -> value.
"""
