"""What is done to tasks."""
