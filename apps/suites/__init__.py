"""The suites as data: one TOML file each, in the format that :mod:`apps.catalogue` describes."""
