"""Reading and encoding videos: by ranges, one frame at a time, with PyAV (the extra ``video``)."""
