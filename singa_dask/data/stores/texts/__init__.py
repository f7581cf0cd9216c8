"""Texts.

`lines`: the bytes of a text, line by line. `vocabulary`: words.
"""

__all__: list[str] = []
