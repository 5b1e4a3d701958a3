"""A Markdown file of the project, as GitHub reads it, and its HTML on the site."""
import html
import re

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer


def formula(tex, options):
    """TeX between the signs that MathJax looks for."""
    opening, closing = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return opening + html.escape(tex.strip().strip("`")) + closing


PARSER = (MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
          .use(dollarmath_plugin, allow_space=False, allow_labels=False, renderer=formula))


def page_name(path):
    """The name of a file's page: docs_cuda for docs/cuda.md; for a README.md, the name of its folder."""
    name = re.sub(r"(^|/)README\.md$|\.md$", "", path)
    return re.sub(r"\W+", "_", name) or "index"


def code_lines(lines, kind=""):
    """Lines of HTML as one block of code."""
    return (f'<div class="fragment {kind}">' +
            "\n".join(f'<div class="line">{line or " "}</div>' for line in lines) + "</div>\n")


def diff_lines(lines, names=0):
    """A difference, for reading. The first `names` lines name the files."""
    kinds = {"@": "place", "-": "gone", "+": "new", " ": "same"}
    shown = [f'<div class="line {"file" if i < names else kinds.get(line[:1], "same")}">{html.escape(line)}</div>'
             for i, line in enumerate(lines)]
    return '<div class="fragment diff">' + "\n".join(shown) + "</div>\n"


class Page:
    """One page: its title, its body, and its headings for the list of sections and for the search."""

    def __init__(self, site, path):
        self.site, self.path, self.name = site, path, page_name(path)
        self.text = (site.root / path).read_text("utf-8")
        self.title = re.search(r"^# (.*)$", self.text, re.MULTILINE)[1]
        self.headings = []  # (level, address on the page, text)

    def render(self, directives):
        """The page's body. `directives`: functions that make what <!-- NAME ARGUMENTS --> becomes."""
        return self.markdown(self.text, self.path.rpartition("/")[0], 0, directives)

    def markdown(self, text, folder, deeper=0, directives=None):
        """HTML of a text whose links start from `folder`. Headings are `deeper` levels deeper."""
        tokens = PARSER.parse(text)
        command = None
        for i, token in enumerate(tokens):
            if token.type == "heading_open":
                self.add_heading(*tokens[i:i + 3], deeper)
            elif token.type == "html_block":
                shown = re.match(r"<!-- output of: (.*?)(?: \(code \d+\))? -->", token.content)
                directive = re.match(r"<!-- (\w+)(.*?) -->", token.content)
                command = shown[1] if shown else command
                if directive and directive[1] in (directives or {}):
                    token.content = directives[directive[1]](*directive[2].split())
                token.content = re.sub(r"<!--.*?-->\n?", "", token.content, flags=re.DOTALL)
            elif token.type in ("fence", "code_block"):
                self.replace(token, self.block(token, command))
                command = None
            elif token.type == "inline":
                self.link_words(token.children, folder)
        return (PARSER.renderer.render(tokens, PARSER.options, {})
                .replace("<table>", '<div class="wide"><table>')
                .replace("</table>", "</table></div>"))

    @staticmethod
    def replace(token, content):
        """Makes HTML of a token."""
        token.type = "html_block" if token.block else "html_inline"
        token.content = content

    def address(self, text):
        """A heading's address, as GitHub makes it: unique on the page."""
        slug = re.sub(r"[^a-z0-9 _-]", "", text.lower()).replace(" ", "-")
        taken = {address for _, address, _ in self.headings}
        return next(name for name in [slug] + [f"{slug}-{i}" for i in range(1, 1000)] if name not in taken)

    def add_heading(self, opening, inline, closing, deeper):
        """A heading's level and address."""
        level = int(opening.tag[1]) + deeper
        opening.tag = closing.tag = f"h{level}"
        text = "".join(child.content for child in inline.children)
        opening.attrSet("id", self.address(text))
        if level > 1:
            self.headings.append((level, opening.attrGet("id"), text))

    def heading(self, level, text, address):
        """A heading that no Markdown has."""
        self.headings.append((level, address, text))
        return f'<h{level} id="{address}">{html.escape(text)}</h{level}>\n'

    def block(self, token, command):
        """A block of code. Output begins with the command that prints it."""
        text = token.content.rstrip("\n")
        if token.info.strip() == "cpp":
            return code_lines(self.highlighted(text).split("\n"))
        if token.info.strip() == "diff":
            return diff_lines(text.split("\n"))
        return code_lines(html.escape(f"$ {command}\n{text}" if command else text).split("\n"))

    def highlighted(self, code):
        """C++ with its comments, keywords and strings marked, and names as links to the reference."""
        def linked(match):
            address = self.site.names.get(match[1])
            return f'<a class="code" href="{address}">{match[1]}</a>' if address else match[0]
        return re.sub(r'(?<!<span class="p">\.</span>)<span class="n[cf]?">(\w+)</span>', linked,
                      highlight(code, CppLexer(), HtmlFormatter(nowrap=True))).rstrip("\n")

    def link_words(self, tokens, folder):
        """Links lead to pages; the name of a class or a file in code becomes a link."""
        in_link = False
        for i, token in enumerate(tokens):
            if token.type == "link_open":
                token.attrs["href"] = self.site.address(token.attrs["href"], folder, self.path)
                if not token.attrs["href"]:  # the site has nothing to show
                    closing = next(other for other in tokens[i:] if other.type == "link_close")
                    token.tag, token.attrs, closing.tag = "span", {}, "span"
            if token.type == "image" and token.attrs["src"].endswith(".svg"):
                self.replace(token, self.drawn(folder, token.attrs["src"]))
                continue
            in_link = (in_link or token.type == "link_open") and token.type != "link_close"
            if token.type == "code_inline" and len(token.content) > 36:
                token.attrSet("class", "long")  # it may be divided at the end of a line
            address = token.type == "code_inline" and self.site.address_of_code(token.content, folder)
            if address and not in_link:
                self.replace(token, f'<a href="{address}"><code>{html.escape(token.content)}</code></a>')

    def drawn(self, folder, picture):
        """A picture of docs/site/draw, in dark colours where the site's switch says so."""
        svg = (self.site.root / folder / picture).read_text("utf-8")
        dark = r"@media\(prefers-color-scheme:dark\){(.*?}})"
        svg = re.sub(dark, lambda rules: rules[1].replace(".sb", ":where(.dark) .sb")[:-1], svg)
        return f'<span class="drawing">{svg}</span>'

    def contents(self):
        """The list of the page's sections, if there are more than two."""
        if sum(level == 2 for level, _, _ in self.headings) <= 2:
            return ""
        items = (f'<li class="level{level - 1}"><a href="#{address}">{html.escape(text)}</a></li>'
                 for level, address, text in self.headings if level < 4)
        return f'<details class="toc" open><summary>On this page</summary><ul>{"".join(items)}</ul></details>\n'
