"""The spec of a run, as everything above the collectors imports it. It is defined where the worker can read it."""

from profilers.collectors.spec import Spec, decode, encode

__all__ = ["Spec", "decode", "encode"]
