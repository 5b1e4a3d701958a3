// What the translated program takes from this page instead of files.
/* global texts, py */
const given = {
  filled: (frame, parts) => texts.frame.replace(/<!-- (\w+) -->/g, (_, name) => parts.get(name)),
  style: () => texts.style,
  program: () => texts.player,
  source_of: (_, file) => texts.sources[file]?.split("\n") ?? [],
  lesson_of: () => py.dict([["questions", []], ["stops", []]]),
};
