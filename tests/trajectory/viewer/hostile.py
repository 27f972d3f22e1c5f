"""Texts that try to run, to leave the page, or to look like something else; and the elements of a page."""

import re
from html.parser import HTMLParser

__all__ = ["CONTROL", "HOSTILE", "Elements"]

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200f\u202a-\u202e\u2066-\u2069\u2028]")
"""What no page may hold as it is."""

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "</pre><script>alert(1)</script>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe src=javascript:alert(1)>",
    "<object data=x>",
    "<embed src=x>",
    "<base href=//evil>",
    "<link rel=stylesheet href=//evil>",
    "<meta http-equiv=refresh content=0;url=//evil>",
    "<style>*{display:none}</style>",
    "<form action=//evil><input></form>",
    "<math><mi xlink:href=javascript:alert(1)>x",
    "<!--",
    "-->",
    "<![CDATA[x]]>",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "&#x3c;script",
    "{{ 7*7 }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "{{ config }}",
    "\x00\x01\x02",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\u202eright to left",
    "\u2066\u2069",
    "\u200fmark",
    "\u2028line\u2029",
    "\ufeffbom",
    "\x85next",
    "\x7f",
    '=HYPERLINK("//evil")',
    "+1+1",
    "@SUM(1)",
    "-1",
    "\U0001f600",
    "a" * 5000,
    "\r\nSet-Cookie: x=1",
    "%3Cscript%3E",
    "\\u003cscript\\u003e",
    "<scr\x00ipt>",
    "<SCRIPT SRC=//evil></SCRIPT>",
    "<details open ontoggle=alert(1)>",
    "<template><script>alert(1)</script></template>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "`${alert(1)}`",
    "</title><script>alert(1)</script>",
    "</option></select><script>alert(1)</script>",
    "<textarea><script>alert(1)</script>",
    "\\ud800 lone",
    "lone \ud800",
)


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
