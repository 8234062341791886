"""The layers of each architecture, from token ids to hidden states, without padding."""
