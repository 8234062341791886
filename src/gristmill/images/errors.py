"""The error of an image that cannot be used."""


class BadImage(ValueError):
    """An image that cannot be read. Its text is the reason in quarantine: short, without names or numbers of one image.

    A thousand images with ``BadImage("truncated")`` are one line in a summary.
    """
