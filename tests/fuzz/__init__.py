"""Random cases of every path of the library against a float64 loop: `python -m tests.fuzz`.

A case (`cases.py`) is all that one integer fixes. The truth (`truth.py`) is the formula in float64, written again from
the paper for each f. What error is allowed (`noise.py`, `check.py`) follows from the type and from how much the truth
itself moves when every operation in it is rounded as the type rounds. `PATHS` in `check.py` lists what is checked.
"""
