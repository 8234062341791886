"""Models of transformers in this process: many requests in flight, each leaving the batch when it is done."""
