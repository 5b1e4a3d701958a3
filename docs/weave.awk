# A source file as prose and code. With the functions of markdown.awk; beside their variables,
#   file     the source file, relative to root
#   listing  the page of Doxygen's that lists it, with links in its lines; "" for none
#   title    the section's heading
#
# Prose is a block of /// comments that begins with "## " and a heading. All else is code, as it stands.

function after_title() {}

# Doxygen's listing of a line, without its number.
function read_listing(   line, n) {
  while (listing != "" && (getline line < listing) > 0) {
    if (!match(line, /<div class="line"><a id="l[0-9]+"/)) continue
    line = substr(line, RSTART)
    match(line, /id="l[0-9]+"/)
    n = substr(line, RSTART + 5, RLENGTH - 6) + 0
    sub(/^<div class="line"><a id="l[0-9]+" name="l[0-9]+"><\/a>/, "", line)
    sub(/^<span class="lineno">(<a class="line" href="[^"]*">)? *[0-9]+(<\/a>)?<\/span>/, "", line)
    sub(/<\/div>$/, "", line)
    html[n] = unlinked_variables(line)
  }
}

# Doxygen takes a variable for the function of its name: a link to a function stays where it is called.
function unlinked_variables(line,   out, link, after) {
  out = ""
  while (match(line, /<a class="code hl_function" href="[^"]*">[^<]*<\/a>/)) {
    out = out substr(line, 1, RSTART - 1)
    link = substr(line, RSTART, RLENGTH)
    line = after = substr(line, RSTART + RLENGTH)
    if (after !~ /^(&lt;[^(]*&gt;)?\(/) {
      sub(/^<a[^>]*>/, "", link)
      sub(/<\/a>$/, "", link)
    }
    out = out link
  }
  return out line
}

function emit_code(first, last,   i) {
  while (first <= last && source[first] ~ /^[ \t]*$/) first++
  while (last >= first && source[last] ~ /^[ \t]*$/) last--
  if (first > last) return
  printf "\n\\htmlonly[block]\n<div class=\"fragment\">"
  for (i = first; i <= last; i++)
    print "<div class=\"line\">" (i in html ? html[i] : escaped(source[i])) "</div>"
  print "</div>\n\\endhtmlonly\n"
}

BEGIN {
  load_tables()
  read_listing()
  code_begins = 1
  page = section_of(file)
  has_title = 1
  heading(2, title, page)
}
{
  source[NR] = $0
  is_doc = /^[ \t]*\/\/\/([^<]|$)/
  if (is_doc && !was_doc && /^[ \t]*\/\/\/ ## /) {
    print ""
    emit_code(code_begins, NR - 1)
    is_prose = 1
  } else if (!is_doc && is_prose) {
    finish_markdown()
    is_prose = 0
    code_begins = NR
  }
  was_doc = is_doc
  if (!is_prose) next
  sub(/^[ \t]*\/\/\/ ?/, "")
  markdown($0, 1)
}
END {
  if (is_prose) finish_markdown()
  else emit_code(code_begins, NR)
}
