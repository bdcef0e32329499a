"""How a script's process joins a job, is asked to stop, and ends. See README.md."""
