"""The pages of docs/ that say how to do something: what stands there is run."""
