"""Texts.

`lines`: bytes of a text. `vocabulary`: words.
"""

__all__: list[str] = []
