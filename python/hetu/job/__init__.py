"""Running a graph: the Executor, its runs, and the parts that the training scripts share. See README.md."""
