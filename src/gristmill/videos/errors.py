"""The error of a video that cannot be used."""


class BadVideo(ValueError):
    """A video that cannot be read. Its text is the reason in quarantine: short, without names or numbers of one video.

    A thousand videos with ``BadVideo("truncated")`` are one line in a summary.
    """

    def __init__(self, reason: str, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.may_pass = may_pass
        """Whether another attempt may succeed: a server failed. A damaged video stays damaged."""

    @property
    def reason(self) -> str:
        """Why the video cannot be used."""
        return str(self)

    def __reduce__(self) -> "tuple[type[BadVideo], tuple[str, bool]]":
        return type(self), (str(self), self.may_pass)
