"""A stand-in for cupti-python: the names, signatures and errors that are documented, and samples that a test prepared."""
