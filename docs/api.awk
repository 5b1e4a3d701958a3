# A source file as Doxygen is to read it for the reference: as many lines, and only comments differ.

function is_blank(text) { return text ~ /^[ \t]*$/ }

# $formulas$ within a line.
function with_formulas(text,   out, formula) {
  out = ""
  while (match(text, /\$[^$ ][^$]*\$/)) {
    formula = substr(text, RSTART + 1, RLENGTH - 2)
    out = out substr(text, 1, RSTART - 1) "\\f$" formula "\\f$"
    text = substr(text, RSTART + RLENGTH)
  }
  return out text
}

{ lines[NR] = $0 }
END {
  # The first comment, if nothing but #pragma once stands before it, is the file's.
  for (first = 1; first <= NR && (is_blank(lines[first]) || lines[first] ~ /^#pragma once/); first++) continue
  if (lines[first] ~ /^\/\/\//) {
    for (last = first; lines[last + 1] ~ /^\/\/\//; last++) continue
    if (is_blank(lines[last + 1])) {
      lines[last + 1] = "/// \\file"
      # At the beginning of a description, Doxygen does not take four spaces for code.
      if (lines[first] ~ /^\/\/\/     /) lines[first] = "/// \\verbatim " substr(lines[first], 9) " \\endverbatim"
    }
  }
  for (i = 1; i <= NR; i++) {
    if (lines[i] ~ /^[ \t]*\/\/\/ ##+ /) sub(/##+ /, "\\par ", lines[i])
    # In one block with the next comment, that would be the group's.
    if (lines[i] ~ /^[ \t]*\/\/\/ @[{}] *$/) lines[i] = lines[i] ~ /{/ ? "/** @{ */" : "/** @} */"
    if (lines[i] ~ /\/\/\/.*\$/) lines[i] = with_formulas(lines[i])
    print lines[i]
  }
}
