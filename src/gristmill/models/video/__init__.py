"""Models of videos: shot detection, embeddings and captions."""
