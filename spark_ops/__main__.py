"""`python -m spark_ops`; also what `spark-submit` runs."""

import sys

from spark_ops.cli.main import main

sys.exit(main())
