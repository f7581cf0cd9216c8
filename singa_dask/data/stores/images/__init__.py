"""Pictures.

`image`: folders and lists. `image_decoding`: pixels.
"""

__all__: list[str] = []
