"""The frame of every self-contained HTML page."""

from __future__ import annotations

from html import escape


def html_page(title: str, style: str, body: str) -> str:
    """Returns the page. `title` is plain text; `style` and `body` are inserted unescaped."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
