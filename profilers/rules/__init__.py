"""Which operator or kernel is what: rules as data (TOML), and one matcher that says which line decided."""
