"""The first step in which two runs differ. A run is a Page of join.py: a record with steps and sentences."""
import html
import re


def words_of_step(run, at):
    """What happens in a step, without the steps that it names. None where there is none."""
    if at >= len(run.steps):
        return None
    text = html.unescape(re.sub("<[^>]+>", "", run.sentences.of(at)))
    return re.sub(r" (It|They) uses? .*", "", text)


def place_of_step(run, at):
    """FILE:LINE of a step in brackets, if it is known."""
    line = run.steps[at].items[0].last.line if at < len(run.steps) else None
    return f" ({run.record.place(line)})" if line is not None else ""


def first_difference(right, wrong):
    """The number of the first step that is not the same in both. None if all are."""
    numbers = range(max(len(right.steps), len(wrong.steps)))
    return next((at for at in numbers if words_of_step(right, at) != words_of_step(wrong, at)), None)


def difference_in_words(right, wrong):
    """Which step differs first, and what each run does there: a line each."""
    at = first_difference(right, wrong)
    if at is None:
        return [f"No step of {len(right.steps)} differs."]
    return [f"Step {at} is the first that differs."] + [
        f"{name}: {words_of_step(run, at) or 'The run has ended.'}{place_of_step(run, at)}"
        for name, run in (("right", right), ("wrong", wrong))]
