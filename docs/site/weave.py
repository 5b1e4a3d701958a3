"""A chapter's source as part of its page: prose and code, and the difference to what an engine builds on."""
import difflib
import html
import re
import subprocess

from markdown_page import code_lines, diff_lines, page_name


def bases(path):
    """What a header says it builds on: "/// Builds on: 01_single_device, 03_x/y.hpp." """
    found = re.findall(r"^/// Builds on: *(.*?)\.? *$", path.read_text("utf-8"), re.MULTILINE)
    return [base for line in found for base in re.split(r", *| and ", line)]


def engine(root, base):
    """The header that `base` names: a file itself, or the engine of a chapter, NN_name/name.hpp."""
    path = root / "chapters" / base
    header = path if path.suffix else path / (re.sub(r"^\d+_", "", base) + ".hpp")
    if not header.is_file():
        raise SystemExit(f"error: expected an engine that others build on, given {base}")
    return header


def sources(folder):
    """Reading order: the engine; its main; headers, first as README.md links to them; closed forms; the rest."""
    linked = re.findall(r"\]\((?:\./)?(\w+\.hpp)\)", (folder / "README.md").read_text("utf-8"))
    headers = sorted(path.name for path in folder.glob("*.hpp"))
    last = [name for name in headers if name.endswith("costs.hpp")] + ["chapter.hpp"] + sorted(path.name for path in folder.glob("*.cpp"))
    order = [re.sub(r"^\d+_", "", folder.name) + ".hpp", "main.cpp"]
    order += [name for name in linked + headers if name not in last] + last
    return [folder / name for name in dict.fromkeys(order) if (folder / name).is_file()]


def listing(page):
    """The lines of Doxygen's listing of a source file, by their numbers. Their names are links."""
    lines = {}
    pattern = r'<div class="line"><a id="l(\d+)"[^>]*></a><span class="lineno">.*?</span>(.*)</div>'
    # Doxygen takes a variable for the function of its name: only a call keeps its link.
    no_call = re.compile(r'<a class="code hl_function"[^>]*>([^<]*)</a>(?!(&lt;[^(]*&gt;)?\()')
    for number, line in re.findall(pattern, page.read_text("utf-8")):
        lines[int(number)] = no_call.sub(r"\1", line)
    return lines


def parts(lines):
    """Source as (is prose, first, last + 1). Prose is a /// comment that begins with "## "."""
    first, is_prose, was_comment = 0, False, False
    for i, line in enumerate(lines + [""]):
        is_comment = re.match(r"\s*///([^<]|$)", line) is not None
        begins = is_comment and not was_comment and re.match(r"\s*/// ## ", line)
        if begins or (is_prose and not is_comment):
            yield is_prose, first, i
            first, is_prose = i, bool(begins)
        was_comment = is_comment
    yield is_prose, first, len(lines)


def source(page, path):
    """One file of a chapter, below its title."""
    site, name = page.site, path.relative_to(page.site.root).as_posix()
    text = path.read_text("utf-8")
    lines = text.splitlines()
    kind = "The engine: " if "public ShardedEngine" in text else ""
    kind = "Its closed forms: " if path.name.endswith("costs.hpp") else kind
    shown = listing(site.output / site.listings[name])
    result = page.heading(2, kind + path.name, page_name(name))
    for is_prose, first, last in parts(lines):
        if is_prose:
            prose = "\n".join(re.sub(r"^\s*/// ?", "", line) for line in lines[first:last])
            result += page.markdown(prose, name.rpartition("/")[0], deeper=1)
            continue
        while first < last and not lines[first].strip():
            first += 1
        while first < last and not lines[last - 1].strip():
            last -= 1
        if first < last:
            result += code_lines(shown.get(i + 1, html.escape(lines[i])) for i in range(first, last))
    return result + "".join(difference(page, engine(site.root, base), path) for base in bases(path))


def difference(page, old, new):
    """The difference between two headers, for reading."""
    names = [path.relative_to(page.site.root).as_posix() for path in (old, new)]
    address = f"{page_name(names[1])}_from_{page_name(names[0])}"
    result = page.heading(3, f"From {old.name} to {new.name}", address)
    texts = [path.read_text("utf-8").splitlines() for path in (old, new)]
    lines = list(difflib.unified_diff(*texts, *names, lineterm=""))
    return result + diff_lines(lines, 2)


def graph(chapters):
    """Which chapter builds on which, as SVG. `chapters`: their pages."""
    text = ('digraph { rankdir=LR; bgcolor=transparent; edge [color="#8a9cc0", arrowsize=0.7];'
            'node [shape=box, style="rounded,filled", fillcolor="#f4f6fa", color="#8a9cc0", '
            'fontname="sans-serif", fontsize=11, height=0.3];')
    for page in chapters:
        folder = (page.site.root / page.path).parent
        text += f'"{folder.name}" [label="{page.title}", URL="{page.name}.html", target="_top"];'
        before = {base.partition("/")[0] for header in folder.glob("*.hpp") for base in bases(header)}
        text += "".join(f'"{name}" -> "{folder.name}";' for name in sorted(before - {folder.name}))
    dot = subprocess.run(["dot", "-Tsvg"], input=text + "}", stdout=subprocess.PIPE, text=True, check=True)
    return dot.stdout[dot.stdout.index("<svg"):]
