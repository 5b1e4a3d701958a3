"""Functions that become holes: the places of their bodies in a file, and the calls that replace them.

A function is named by its signature as the file spells it, up to the opening brace. So chapters need no marks,
and a function that was moved or renamed is an error, not a hole in the wrong place."""
import hashlib
import re
from dataclasses import dataclass


class Misplaced(Exception):
    """A function that does not occur exactly once in its file."""


# Text that may contain a brace: comments, strings, characters. Digit separators (1'000) are part of a number.
HIDDEN = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\b\d[\w']*|"""
                    r"""'(?:\\.|[^'\\\n])+'""", re.S)


@dataclass(frozen=True)
class Hole:
    """A function of a file, whose path begins in chapters/. Without a signature: the whole file."""
    file: str
    signature: str
    inside: str = ""  # its class, if several functions of the file have this signature

    @property
    def name(self):
        """The short name: "backward", or "operator()"; or the file."""
        if self.is_file:
            return self.file.split("/")[-1]
        return re.search(r"(operator\(\)|\w+)\s*\(", self.signature)[1]

    @property
    def is_file(self):
        return not self.signature

    @staticmethod
    def named(text):
        """Parses "FILE: SIGNATURE", "FILE: CLASS / SIGNATURE" or "FILE"."""
        file, _, function = text.partition(": ")
        inside, slash, signature = function.partition(" / ")
        return Hole(file, signature, inside) if slash else Hole(file, function)

    def body(self, text):
        """The begin and the end of the body in the file's text, without its braces."""
        return self.place(text)[1:]

    def body_in(self, text):
        """The text of the body, without its braces."""
        return text[slice(*self.body(text))]

    def place(self, text):
        """The begin of the function, and the begin and end of its body. Spaces may differ from the signature's."""
        first, begin, end = 0, 0, len(text)
        if self.is_file:
            return first, begin, end
        if self.inside:
            _, begin, end = self.found_once(rf"class {self.inside}\b[^;{{]*\{{", text, 0, end)
        words = re.findall(r"\w+|\S", self.signature)
        spaces = (r"\s+" if (a[-1] + b[0]).isidentifier() else r"\s*" for a, b in zip(words, words[1:]))
        pattern = "".join(re.escape(a) + b for a, b in zip(words, [*spaces, r"\s*\{"]))
        return self.found_once(pattern, text, begin, end)

    def found_once(self, pattern, text, begin, end):
        """The begin of the only match between two places, and the begin and end of the braces that it opens."""
        found = list(re.compile(pattern).finditer(text, begin, end))
        if len(found) != 1:
            name = f"{self.inside} / {self.signature}" if self.inside else self.signature
            raise Misplaced(f"chapters/{self.file}: expected one function \"{name}\", given {len(found)}")
        return found[0].start(), found[0].end(), closing_brace(text, found[0].end(), self)

    def cut(self, text, exercise, says="not_done"):
        """The file's text with a hole instead of the body. The hole reports itself when it is called."""
        return self.filled(text, f' {says}("{exercise}"); ')

    def filled(self, text, body):
        """The file's text with another body of this function."""
        begin, end = self.body(text)
        return text[:begin] + body + text[end:]


def closing_brace(text, begin, hole):
    """The position of the brace that closes the one before `begin`."""
    visible = HIDDEN.sub(lambda found: " " * len(found[0]), text)
    depth = 1
    for place in re.finditer(r"[{}]", visible[begin:]):
        depth += 1 if place[0] == "{" else -1
        if depth == 0:
            return begin + place.start()
    raise Misplaced(f"chapters/{hole.file}: expected a closing brace of \"{hole.signature}\", given none")


def require_braces(text, file):
    """Checks that all braces are closed. Otherwise a function would end behind the next one."""
    visible = HIDDEN.sub("", text)
    if (opened := visible.count("{")) != (closed := visible.count("}")):
        raise Misplaced(f"chapters/{file}: expected as many closing braces as opening ones, given {closed} and {opened}")


def sum_of(path):
    """A digest of a file's text, independent of its line ends."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()[:16]


def outside(text, holes):
    """The lines of a file without these functions: {number: the line without spaces and comments}."""
    for hole in holes:
        begin, _, end = hole.place(text)
        text = text[:begin] + re.sub(r"[^\n]", " ", text[begin:end + 1]) + text[end + 1:]
    lines = (re.sub(r"\s+", "", re.sub(r"//.*", "", line)) for line in text.split("\n"))
    return {number: line for number, line in enumerate(lines, 1) if line}


def additions(lines, own):
    """The numbers of the lines that a file, {number: line}, adds to `own`; None if it lacks one of these."""
    left, added = list(reversed(own)), []
    for number, line in lines.items():
        if left and left[-1] == line:
            left.pop()
        else:
            added.append(number)
    return None if left else added


def with_include(text, header):
    """A header's text with one more include, after its own if it has some."""
    last = [0, *(line.end() for line in re.finditer(r"^#include .*\n|^#pragma once\n", text, re.M))][-1]
    return text[:last] + f'#include "{header}"\n' + text[last:]
