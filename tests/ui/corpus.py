"""Names that would be markup, script or a link if a page took them for more than text."""

from typing import Final

MARK: Final = "xss-mark"
"""Every element of the corpus carries it, so that one look finds whatever became an element."""

NAMES: Final = (
    f"<script class={MARK}>window.xss=1</script>",
    f'<img class={MARK} src=x onerror="window.xss=1">',
    f"\"><svg class={MARK} onload='window.xss=1'>",
    f"'><b class={MARK} onmouseover=window.xss=1 style=position:fixed;inset:0>",
    f"</title></style></textarea></script><iframe class={MARK} srcdoc='<script>parent.xss=1</script>'>",
    f"<a class={MARK} href='javascript:window.xss=1'>x</a>",
    "javascript:window.xss=1//",
    "{{constructor.constructor('window.xss=1')()}}${window.xss=1}<%= window.xss=1 %>",
    f"&lt;u class={MARK}&gt;&#60;u class={MARK}&#62;",
    f"%3Cscript%20class%3D{MARK}%3Ewindow.xss%3D1%3C%2Fscript%3E",
    "' onfocus='window.xss=1' autofocus='",
    "../../x?y#/z%2F..%2f\\",
    "\u202eright-to-left \u2028\u2029\ufeff\u0000".replace("\u0000", "\u0001"),
    f"{'é' * 100}<i class={MARK}>",
)

FOUND: Final = f"""() => ({{
  ran: window.xss ?? null,
  elements: [...document.querySelectorAll(".{MARK}, iframe, object, embed, base, [onerror], [onload], [onfocus]")]
    .map((element) => element.outerHTML.slice(0, 200)),
  links: [...document.querySelectorAll("[href], [src], [action], [formaction]")]
    .map((element) => element.getAttribute("href") ?? element.getAttribute("src") ?? "")
    .filter((target) => /^\\s*(javascript|data|vbscript):/i.test(target)),
  scripts: [...document.scripts].filter((script) => !script.src).length,
}})"""
"""The script returns what a page made of the corpus beyond text: to be `CLEAN`."""

CLEAN: Final = {"ran": None, "elements": [], "links": [], "scripts": 0}
