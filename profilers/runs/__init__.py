"""The run folder, its queue and its supervisor."""
