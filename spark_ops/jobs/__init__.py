"""Code that runs on Spark. No other package imports pyspark, and this one is imported only when a job starts."""
