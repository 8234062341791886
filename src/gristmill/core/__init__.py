"""The Ray cluster of a run: found or started, connected to, and watched."""
