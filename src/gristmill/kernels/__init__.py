"""The hot loops, over raw Arrow buffers. Importing this loads neither Numba nor pyarrow."""
