"""Pictures.

`image`: folders and lists of image files. `image_decoding`: decodes images to pixels.
"""

__all__: list[str] = []
