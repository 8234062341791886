"""Models of images: vision transformers and a small convolutional network, from checkpoints to embeddings."""
