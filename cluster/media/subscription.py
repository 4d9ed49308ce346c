"""A subscription: the images of the publications that reach its channel and stream."""

from __future__ import annotations

from cluster.media.image import Image


class Subscription:
    """Its images come and go as the conductor hears of them."""

    def __init__(self, registration_id: int, channel: str, stream_id: int) -> None:
        self.registration_id = registration_id
        self.channel = channel
        self.stream_id = stream_id
        self.channel_status_counter_id = -1
        self.images: dict[int, Image] = {}  # by session id

    def image_of(self, session_id: int) -> Image | None:
        """The image of the publication with this session id, if there is one now."""
        return self.images.get(session_id)
