"""Code that runs on Spark. Nothing outside this folder imports pyspark, and nothing here is imported before a job."""
