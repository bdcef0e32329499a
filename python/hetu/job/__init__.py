"""Running a graph: the Executor, what it does in a run, and what the training scripts share. See README.md."""
