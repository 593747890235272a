"""`python -m node` is `fluffle`."""

import sys

from node.cli.main import main

sys.exit(main())
