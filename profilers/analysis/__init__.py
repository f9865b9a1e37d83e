"""Tables -> answers: pure functions, one question a module. :mod:`profilers.analysis.registry` lists them."""
