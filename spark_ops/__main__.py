"""The entry point of `python -m spark_ops` and of `spark-submit`."""

import sys

from spark_ops.cli.main import main

sys.exit(main())
