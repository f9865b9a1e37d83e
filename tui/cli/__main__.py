"""``python -m tui.cli``: the same as the ``kernelscope`` command."""

import sys

from tui.cli import main

sys.exit(main())
