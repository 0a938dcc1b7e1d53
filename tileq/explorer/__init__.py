"""The explorer: one page on which GPU, model, traffic and limits are chosen and the stable rates follow.

`page.py` is the marimo application (cells alone, no logic), `choices.py` what can be chosen, `view.py` what is shown,
`server.py` the page on a port of this machine. The answers are `tileq.exploring`'s.
"""
