"""The themes by name, the usual one first. Apart from the screen, so that the command line knows them without Textual."""

from __future__ import annotations

THEMES = ("kernelscope-dark", "kernelscope-light", "ansi-dark", "ansi-light")
