"""Just enough reading of CUDA C++ to run it: where its kernels are, which of them wait, what memory they share."""

from __future__ import annotations

import functools
import re

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
KERNEL = re.compile(r"__global__[^;{}()]*?(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*?)?\b(\w+)\s*\(")
DYNAMIC = re.compile(r"extern\s+__shared__\s+((?:unsigned\s+)?[\w:]+(?:\s+(?:int|long|char))*)\s+(\w+)\s*\[\s*\]\s*;")
CALLABLE = re.compile(r"\b(\w+)\s*\(")
WAITS = re.compile(r"\b(?:__sync\w+|__shfl\w*|__ballot_sync|__any_sync|__all_sync)\b")
WORD = re.compile(r"\b\w+\b")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def plain(source: str) -> str:
    """Return the text without its comments, lines where they were."""
    return COMMENT.sub(lambda m: " " + "\n" * m[0].count("\n"), source)


@functools.cache
def kernels(source: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(KERNEL.findall(plain(source))))


def _closing(text: str, start: int, opens: str, closes: str) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == opens) - (text[at] == closes)
        if depth == 0:
            return at
    return len(text) - 1


@functools.cache
def _bodies(source: str) -> dict[str, set[str]]:
    """Find the words in the body of each function and macro, by its name."""
    text = plain(source)
    bodies: dict[str, set[str]] = {}
    for match in MACRO.finditer(text):
        bodies.setdefault(match[1], set()).update(WORD.findall(match[2]))
    text = MACRO.sub(lambda m: "\n" * m[0].count("\n"), text)
    at = 0
    while match := CALLABLE.search(text, at):
        at = match.end()
        close = _closing(text, match.end() - 1, "(", ")")
        after = re.compile(r"\s*(?:const\s*)?(?:noexcept\s*)?\{").match(text, close + 1)
        if after is None:
            continue
        end = _closing(text, after.end() - 1, "{", "}")
        if match[1] not in ("if", "for", "while", "switch"):
            bodies.setdefault(match[1], set()).update(WORD.findall(text[after.end() : end]))
    return bodies


def defined(source: str, options: tuple[str, ...]) -> str:
    """Return the text after the macros that options define."""
    parts = (option[2:].partition("=") for option in options if option.startswith("-D"))
    return "".join(f"#define {name} {value}\n" for name, _, value in parts) + source


@functools.cache
def waits(source: str, kernel: str) -> bool:
    """Return whether a kernel, or what it calls, has a barrier or a shuffle; yes where its text is not understood."""
    bodies = _bodies(source)
    if kernel not in bodies:
        return WAITS.search(plain(source)) is not None
    seen, todo = {kernel}, [kernel]
    while todo:
        words = bodies[todo.pop()]
        if any(WAITS.fullmatch(word) for word in words):
            return True
        new = words & bodies.keys() - seen
        seen |= new
        todo.extend(new)
    return False


def shared(source: str) -> str:
    """Return the text with the shared memory of each kernel in a section of its own, which can be measured."""
    text = plain(source)
    text = DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(simulated::dynamic_shared);", text)
    starts = [(match.start(), match[1]) for match in KERNEL.finditer(text)]
    pieces, last = [], 0
    for match in re.finditer(r"\b__shared__\b", text):
        name = next((name for start, name in reversed(starts) if start < match.start()), "common")
        pieces += [text[last : match.start()], f'static __attribute__((section("shared_{name}"), used))']
        last = match.end()
    return "".join([*pieces, text[last:]])
