"""The compiler's messages about lines of a reader, with our sentence where we have one."""
import re

MESSAGE = r"^(?:.*\bchapters/)?(.+?):(\d+):\d+:(?:$| +(required from |(?:fatal )?(?:error|warning): .*$))"
WORDS = [
    (r"(?:deleted function|construct_at|constructible).*const shard::(\w+(?:<\d+>)?) ?&",
     r"a \1 is not copied: write std::move(x), or x.clone() of a Tensor"),
    (r"result type must be constructible", "a vector of tensors is not copied: write std::move(v)"),
    (r"cannot bind rvalue reference of type .(?:shard::)?(\w+(?:<\d+>)?)&&. to lvalue",
     r"this takes the \1 away from you: write std::move(x)"),
    (r"Partial\W.*has no member", "a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum"),
    (r"a function-definition is not allowed here", "a closing brace is missing in the function before this line"),
]


def errors_at(said, is_mine, kind="error"):
    """[(file, line, sentence)] of errors, or warnings, at lines for which `is_mine(file, line)`. An error in a template
    or in an inlined function is reported in the library's file, after the line that used it."""
    found, asked = [], []
    for file, line, text in re.findall(MESSAGE, said, re.M):
        place = (file, int(line))
        if ": " not in text:
            asked += [place] if is_mine(*place) else []
            continue
        if f"{kind}: " not in text:
            asked = []
            continue
        for mine in [place] if is_mine(*place) else asked[:1]:
            sentence = (*mine, in_our_words(text.split(f"{kind}: ", 1)[1]))
            found += [sentence] if sentence not in found else []
        asked = []
    return found


def short(sentence):
    """The sentence of a refusal, without the compiler's words before it."""
    return re.sub(r"^.*?(?:is unavailable|static assertion failed): ", "", sentence)


def in_our_words(text):
    """What a compiler says, after our sentence if there is one."""
    ours = next((found.expand(words) for pattern, words in WORDS if (found := re.search(pattern, text))), "")
    return f"{ours} ({text})" if ours else text
