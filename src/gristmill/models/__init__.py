"""Neural models: weights from checkpoints, tokens in packed batches, and their forward pass on GPUs and CPUs."""
