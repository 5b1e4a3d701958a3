"""A recorded run of a submission's program, whose sizes and seed one number chooses."""
import random
import shlex
import shutil

from files_talk import asked_of_files
from holes import Misplaced
from join import run_of
from problems import settled
from sandbox import Limits
from setup import root
from submission import answer_to, repository_in, text_of
from talk import Talk, number_of
from trees import in_bodies

RUN = Limits(seconds=120, cpu=40)
NOT_RECORDED = ("infer", "reshard")  # commands without a record; exercise 10.1 has no other


def asked_about(tree, folder, student, some):
    """(the run's command, questions with answers) on one of the exercises that a submission has done. Raises
    ValueError: why there are none."""
    chance, refused = random.Random(f"{number_of(student)}/run"), {}
    try:
        repository = repository_in(folder)
    except Misplaced as why:
        raise ValueError(str(why)) from why
    for exercise in chance.sample(list(some.values()), len(some)):
        answer = answer_to(exercise, repository)
        tests = [test for test in (*exercise.hidden, *exercise.tests) if is_recorded(test)]
        reason = answer.refused or ("it is not done yet" if not answer.is_done else "") or built(tree, answer)
        if not reason and not tests:
            return asked_of_files(tree, student)
        if not reason:
            chance.shuffle(tests := largest(tests))
            return asked_of(tree, answer, repository, tests, student)
        refused[exercise.id] = reason
    raise ValueError("; ".join(f"{i}: {reason}" for i, reason in sorted(refused.items())[:3]))


def is_recorded(test):
    return not set(NOT_RECORDED) & set(test.split())


def largest(tests):
    """Those on several devices, if there are some: one device waits for nobody."""
    return [test for test in tests if not test.startswith("1 ")] or tests


def words_of(test, student):
    """The words for a chapter's program: sizes and seed as the student's number chooses. With SGD, an optimizer has no
    state, so that memory is largest in a pass, and not in the update."""
    number, devices, *words = number_of(student), *shlex.split(settled(test, f"oral/{number_of(student)}"))
    if "train" in words:
        words += ["--seed", str(number)] + ["--optimizer", "sgd"] * ("--optimizer" not in words)
    return devices, words


def built(tree, answer):
    """Builds the chapter's program with an answer. Returns why it is not there. Additions that do not compile are left
    out, as by the grader."""
    for files in (answer.files, {}) if answer.files else ({},):
        tree.refresh(answer.bodies, files)
        said = tree.make([], targets=[answer.exercise.chapter])
        errors = [text for found in in_bodies(said, tree, answer.bodies).values() for text in found]
        if errors or not said:
            break
    return f"it does not compile{': ' + errors[0] if errors else ''}" if said else ""


def asked_of(tree, answer, repository, tests, student):
    """The questions on a run of the program that was built: the first test whose options it takes. (Some are the
    grader's alone.)"""
    chapter = answer.exercise.chapter
    for devices, words in (words_of(test, student) for test in tests):
        ended, text = recorded(tree, [devices, tree.build / "emu" / chapter, *words])
        if ended.code != 64:
            break
    command = f"`./chapters/run {chapter[:2]} -n {devices} {shlex.join(words)}`, exercise {answer.exercise.id}"
    ends = f"; it ended with code {ended.code}, {ended.broke or said_in(ended.output)}" if ended.code else ""
    try:
        return command + ends, Talk(run_of(text, root, tree.folder), student, lines_of(tree, answer, repository)).asked
    except ValueError as error:
        raise ValueError(f"{command}: {error}{ends}") from error


def recorded(tree, words):
    """How a run in the sandbox ended, and its record."""
    out = tree.sandbox.scratch / "talk"
    out.mkdir()
    try:
        ended = tree.sandbox.run([tree.folder / "chapters/on_devices", *words, "--record", out / "run.json"],
                                 sees=[tree.folder], writes=[out], limits=RUN)
        record = out / "run.json"
        return ended, record.read_text("utf-8") if record.is_file() and not record.is_symlink() else "{}"
    finally:
        shutil.rmtree(out, ignore_errors=True)


def said_in(output):
    """What a program says of an error, in a line."""
    errors = [line[7:] for line in output.splitlines() if line.startswith("error: ")]
    return errors[0] if errors else "without a word"


def lines_of(tree, answer, repository):
    """{file: {line: its number in the student's file}} of the student's functions. In the tree, functions of other
    exercises stand before them, with the solutions' lengths."""
    found = {}
    for hole in answer.bodies:
        texts = [text_of(folder, hole.file) for folder in (tree.folder, repository)]
        (begin, end), (own, _) = ([text[:at].count("\n") + 1 for at in hole.body(text)] for text in texts)
        lines = {line: line - begin + own for line in range(begin, end + 1)}
        found.setdefault(f"chapters/{hole.file}", {}).update(lines)
    return found
