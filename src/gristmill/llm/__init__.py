"""Requests to language models: back ends, request cache, limits, retries, prompts and structured output."""
