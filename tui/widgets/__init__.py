"""Small widgets of our own on Textual's line API.

The stock table and sparkline rewrite whole rows and rescale themselves at every update: ten times the processor time and
the bytes of these on the same data, and a constant load drawn as nothing. These repaint only lines that changed.
"""
