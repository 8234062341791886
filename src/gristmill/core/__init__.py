"""What is around a run: the cluster that it runs on."""
