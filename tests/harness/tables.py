"""Tables in Markdown."""
import re


def line_of(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def cells_of(row):
    return [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", row.strip("| "))]


def heads_of(names):
    return "\n".join([line_of(names), line_of(["---"] * len(names))])


def table(names, lines):
    return "\n".join([heads_of(names), *lines])
