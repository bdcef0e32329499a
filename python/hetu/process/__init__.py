"""Code with which a script's process joins a job, handles a request to stop, and ends. See README.md."""
