"""One module a command: ``add_arguments(parser)`` declares arguments, ``run(args)`` does it and returns the exit code."""
