"""Capacity planning: from a measured sample to the time, memory and disk of the whole job on any cluster."""
