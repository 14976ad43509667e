"""An SVG file becomes a part of a page: no prolog or style of its own, unique ids, CSS for colour and font."""

from __future__ import annotations

import re
from collections.abc import Mapping


def inlined(svg: str, name: str, size: tuple[float, float], variables: Mapping[str, str]) -> str:
    """An `<svg>` element.

    Args:
        svg: the file, as matplotlib writes it.
        name: what makes its ids different from those of other figures.
        size: width and height in inches; the page scales it.
        variables: what stands for each colour on the page.
    """
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]+"', "<g", body)  # nothing refers to these
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", body)
    body = re.sub(r" ?font-family: [^;\"]*;?", "", body)
    body = re.sub(r"\b(fill|stroke): (#\w{6})\b", lambda at: f"{at[1]}: {variables.get(at[2], at[2])}", body)
    body = re.sub(r"\s+", " ", body).strip()
    width, height = (72 * inches for inches in size)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg viewBox="0 0 {width:g} {height:g}" {spaces} aria-hidden="true" focusable="false">{body}'
