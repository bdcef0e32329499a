"""The parts of heturun: starts the workers of a job, receives their output and status, and ends all of them. The package
itself imports nothing, to keep the start of a guard short."""
