"""What heturun does: starts the workers of a job, hears them, and ends all of them. Imports nothing by itself: a guard has
no time for it."""
