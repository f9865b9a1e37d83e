"""One module a finding: ``find(case) -> Finding | None``. Each prices its change; none states a gain that it did not."""
