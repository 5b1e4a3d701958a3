"""Writes a grading for students, instructors and other programs."""
import json
from pathlib import Path


def as_text(graded):
    """A line for each exercise, and below it each test that lost points, with the reason."""
    earned, points = number(graded.earned), number(graded.points)
    lines = [f"{graded.name}: {earned} of {points} points ({graded.seconds:.0f} s)"]
    for exercise in dict.fromkeys(part.exercise for part in graded.parts):
        parts = [part for part in graded.parts if part.exercise == exercise]
        earned, points = (sum(getattr(part, name) for part in parts) for name in ("earned", "points"))
        lines.append(f"{exercise:>6}  {number(earned):>5} of {number(points)}")
        lost = [part for part in parts if part.earned < part.points]
        if len(lost) == len(parts) and len({tuple(part.why) for part in lost}) == 1:
            lines += [f"          {text}" for text in indented(lost[0].why)]
            continue
        for part in lost:
            lines.append(f"          {part.kind}: {part.name}" if part.kind != part.name else
                         f"          {part.kind}")
            lines += [f"            {text}" for text in indented(part.why)]
    return "\n".join(lines)


def indented(why):
    return [line for text in why for line in text.splitlines()]


def number(value):
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


def write_json(graded, file):
    """The results for Gradescope (https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format)."""
    tests = [{"number": part.exercise, "name": f"{part.exercise} {part.name}", "score": round(float(part.earned), 4),
              "max_score": round(float(part.points), 4), "status": "passed" if part.earned == part.points else "failed",
              "output": "\n".join(part.why), "output_format": "text", "tags": [part.kind, part.exercise],
              "visibility": "after_published" if part.kind == "hidden" else "visible",
              "extra_data": {"kind": part.kind}} for part in graded.parts]
    content = {"score": round(float(graded.earned), 4), "execution_time": round(graded.seconds, 2),
               "output": "Hidden tests are shown when the grades are published.", "output_format": "text",
               "visibility": "visible", "stdout_visibility": "hidden", "tests": tests,
               "leaderboard": leaderboard(graded), "extra_data": {"figures": graded.figures}}
    Path(file).write_text(json.dumps(content, indent=1) + "\n")


def leaderboard(graded):
    """Points; then, over exercises that are right in a large network: bytes sent, most bytes held, and a job's time
    relative to the staff's."""
    right = [figures for figures in graded.figures.values() if figures]
    points = {"name": "points", "value": round(float(graded.earned), 2), "order": "desc"}
    if not right:
        return [points]
    return [points,
            {"name": "bytes sent", "value": sum(f["kernel_bytes"] for f in right), "order": "asc"},
            {"name": "most bytes held", "value": max(f["kernel_held"] for f in right), "order": "asc"},
            {"name": "time, relative to the staff's", "order": "asc",
             "value": round(sum(f["time_ratio"] for f in right) / len(right), 2)}]
