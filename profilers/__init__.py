"""Measuring, reading and analysing: everything of kernelscope that is neither a workload nor the screen.

Floors, from the ground up: :mod:`profilers.tables`, ``rules`` and ``readers``, ``analysis``, ``collectors``, ``runs``.
A module imports only from its own floor or from those below it; ``torch`` is imported inside the worker process alone.
"""
