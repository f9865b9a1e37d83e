"""A recording on disk -> :class:`profilers.tables.Recording`."""
