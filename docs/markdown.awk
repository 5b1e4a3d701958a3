# GitHub's Markdown as Doxygen reads it. A library of functions for the scripts beside it; they set
#   root     the folder of the project, with a slash at its end
#   folder   the file's folder, relative to root, with a slash at its end; "" for root itself
#   page     the name of the page, unique in the site
#   names    "name address" lines: what words of code are links to ("" for none)
#   listings "path address" lines: the listing of each source file
#   images   where pictures are copied to; "" for nowhere
#
# What differs: $formulas$, links to files, addresses of headings, and characters that are commands to Doxygen.

function load_tables(   line, at, n, words, i) {
  while (names != "" && (getline line < names) > 0) {
    at = index(line, " ")
    address_of[substr(line, 1, at - 1)] = substr(line, at + 1)
  }
  while (listings != "" && (getline line < listings) > 0) {
    at = index(line, " ")
    listing_of[substr(line, 1, at - 1)] = substr(line, at + 1)
  }
  n = split("alignas auto bool break case char class concept const constexpr continue default delete do double else " \
            "enum explicit export extern false final float for friend if inline int long namespace new noexcept " \
            "nullptr operator override private protected public requires return short signed sizeof static " \
            "static_assert static_cast struct switch template this throw true try typename union unsigned using " \
            "virtual void while", words, " ")
  for (i = 1; i <= n; i++) is_keyword[words[i]] = 1
  n = split("a b br code dd del details div dl dt em h1 h2 h3 hr i img ins kbd li ol p pre s small span strong sub " \
            "summary sup table tbody td th thead tr tt u ul", words, " ")
  for (i = 1; i <= n; i++) is_tag[words[i]] = 1
}

function escaped(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  gsub(/"/, "\\&quot;", text)
  return text
}

function exists(path,   line, status) {
  status = (getline line < path)
  close(path)
  return status >= 0
}

# "chapters/03_tensor_parallel/../engine/" as "chapters/engine/".
function normal(path) {
  while (match(path, /(^|\/)[^\/.][^\/]*\/\.\.(\/|$)/))
    path = substr(path, 1, RSTART - (substr(path, RSTART, 1) != "/")) substr(path, RSTART + RLENGTH)
  gsub(/\/\.\//, "/", path)
  sub(/^\.\//, "", path)
  return path
}

# The name of a Markdown file's page, and what GitHub calls a heading's address.
function page_of(path) {
  sub(/(^|\/)README\.md$/, "", path)
  sub(/\.md$/, "", path)
  gsub(/[^A-Za-z0-9]+/, "_", path)
  return path == "" ? "index" : path
}
function slug_of(text) {
  text = tolower(text)
  gsub(/[^a-z0-9 _-]/, "", text)
  gsub(/ /, "-", text)
  return text
}
function anchor_of(path, slug) { return page_of(path) "_" slug }

# Where a link leads on the site; "" where the site has nothing to show.
function target_of(url,   at, anchor, path, chapter) {
  if (url ~ /^[a-z]+:/) return url
  anchor = ""
  if ((at = index(url, "#")) > 0) {
    anchor = substr(url, at + 1)
    url = substr(url, 1, at - 1)
  }
  path = url == "" ? file : url ~ /^\// ? substr(url, 2) : normal(folder url)  # from the root, as on GitHub
  sub(/\/$/, "", path)
  if (path !~ /\.[a-z]+$/ && exists(root path "/README.md")) path = (path == "" ? "" : path "/") "README.md"
  if (path ~ /\.md$/) {
    if (!exists(root path) && path ~ /^chapters\/[0-9][0-9]_[^\/]*\/README\.md$/) return ""  # still to be written
    if (!exists(root path)) return url
    return page_of(path) ".html" (anchor == "" ? "" : "#" anchor_of(path, anchor))
  }
  if (path ~ /^chapters\/[0-9][0-9]_[^\/]*\/[^\/]*\.[ch]pp$/) {
    chapter = path
    sub(/[^\/]*$/, "README.md", chapter)
    if (exists(root chapter)) return page_of(chapter) ".html#" section_of(path)
  }
  if (path in listing_of) return listing_of[path]
  if (path ~ /^(chapters|emu|cuda)(\/|$)/ && system("test -d '" root path "'") == 0) return "files.html"
  return system("test -e '" root path "'") == 0 ? "" : url
}
# The part of a chapter's page that has this source file.
function section_of(path) { return page_of(path) }

function image(alt, url,   name) {
  if (url ~ /^[a-z]+:/) return "![" alt "](" url ")"
  name = normal(folder url)
  if (images != "" && exists(root name)) {
    url = name
    gsub(/\//, "_", url)
    system("mkdir -p '" images "' && cp '" root name "' '" images "/" url "'")
    url = "images/" url
  }
  return "\\htmlonly<img src=\"" escaped(url) "\" alt=\"" escaped(alt) "\">\\endhtmlonly"
}

# The end of [text]: the place of the bracket that closes the one in front of `text`.
function closing(text,   i, depth, c, run) {
  depth = 1
  for (i = 1; i <= length(text); i++) {
    c = substr(text, i, 1)
    if (c == "\\") i++
    else if (c == "`" && (run = index(substr(text, i + 1), "`")) > 0) i += run
    else if (c == "[") depth++
    else if (c == "]" && --depth == 0) return i
  }
  return 0
}

# A paragraph, a table or a list: everything within lines.
function inline(text,   out, c, at, end, ticks, rest, words, url, before) {
  out = ""
  while (match(text, /[`$[!<\\@#%]/)) {
    before = substr(text, RSTART - 1, 1)
    out = out substr(text, 1, RSTART - 1)
    if (RSTART == 1) before = substr(out, length(out), 1)
    c = substr(text, RSTART, 1)
    text = substr(text, RSTART)
    if (c == "`") {
      match(text, /^`+/)
      ticks = substr(text, 1, RLENGTH)
      rest = substr(text, RLENGTH + 1)
      end = index(rest, ticks)
      if (end == 0) { out = out ticks; text = rest; continue }
      words = substr(rest, 1, end - 1)
      text = substr(rest, end + length(ticks))
      out = out code_span(ticks, words)
    } else if (c == "$") {
      end = 0
      if (substr(text, 1, 2) == "$$") {
        if ((end = index(substr(text, 3), "$$")) > 0) {
          out = out "\\f[" one_line(substr(text, 3, end - 1)) "\\f]"
          text = substr(text, end + 4)
        }
      } else if (before !~ /[A-Za-z0-9]/ && substr(text, 2, 1) ~ /[^ \n]/) {
        end = end_of_formula(text)
        if (end > 0) {
          words = substr(text, 2, end - 2)
          if (words ~ /^`.*`$/) words = substr(words, 2, length(words) - 2)
          out = out "\\f$" one_line(words) "\\f$"
          text = substr(text, end + 1)
        }
      }
      if (end == 0) { out = out "$"; text = substr(text, 2) }
    } else if (c == "[" || (c == "!" && substr(text, 2, 1) == "[")) {
      at = c == "!" ? 3 : 2
      end = closing(substr(text, at))
      rest = substr(text, at + end)
      if (end == 0 || rest !~ /^\([^) \n]*( "[^"]*")?\)/) { out = out c; text = substr(text, 2); continue }
      words = substr(text, at, end - 1)
      url = substr(rest, 2, index(rest, ")") - 2)
      sub(/ ".*/, "", url)
      text = substr(rest, index(rest, ")") + 1)
      if (c == "!") { out = out image(words, url); continue }
      url = target_of(url)
      in_link = 1
      words = inline(words)
      in_link = 0
      # A file that does not exist stays a link, as it is, for the test of broken links to find.
      if (url ~ /^[^:]*\.md$/) out = out "<a href=\"" url "\">" words "</a>"
      else out = out (url == "" ? words : "[" words "](" url ")")
    } else if (c == "<") {
      if (text ~ /^<!--/) {
        end = index(text, "-->")
        text = end == 0 ? "" : substr(text, end + 3)
      } else if (text ~ /^<(https?|mailto):/ || (match(text, /^<\/?[a-z][a-z0-9]*/) && is_tag[tag_of(text)])) {
        out = out "<"
        text = substr(text, 2)
      } else {
        out = out "&lt;"
        text = substr(text, 2)
      }
    } else if (c == "\\") {
      if (text ~ /^\\[$]/) { out = out "$"; text = substr(text, 3) }
      else if (text ~ /^\\[^A-Za-z0-9 \n]/) { out = out substr(text, 1, 2); text = substr(text, 3) }
      else { out = out "\\\\"; text = substr(text, 2) }
    } else {
      # These begin a command or a link of Doxygen's when a word follows.
      out = out ((c == "!" || substr(text, 2, 1) !~ /[A-Za-z0-9{}\[]/) && c != "@" ? c : "\\" c)
      text = substr(text, 2)
    }
  }
  return out text
}

function tag_of(text) {
  match(text, /^<\/?[a-z][a-z0-9]*/)
  text = substr(text, 2, RLENGTH - 1)
  sub(/^\//, "", text)
  return text
}

function one_line(text) {
  gsub(/[ \t]*\n[ \t]*/, " ", text)
  return text
}

# $formula$: the closing $ follows no space and precedes no digit, as GitHub has it.
function end_of_formula(text,   i, c) {
  for (i = 3; i <= length(text); i++) {
    c = substr(text, i, 1)
    if (c == "\\") i++
    else if (c == "$" && substr(text, i - 1, 1) !~ /[ \n]/ && substr(text, i + 1, 1) !~ /[0-9]/) return i
    else if (c == "$") return 0
  }
  return 0
}

# The name of a class that the chapters use is a link to it, `Partial` or `Sharded<0>`; so is a file's.
function code_span(ticks, words,   name, i) {
  name = words
  if (!in_link && words ~ /^[A-Za-z0-9_\/.]+\.(md|[ch]pp)$/) {
    for (i = 1; i <= (words ~ /\// ? 3 : 1); i++) {
      name = (i == 1 ? folder : i == 2 ? "" : "chapters/") words
      if (!exists(root name)) continue
      name = target_of("/" name)
      return name == "" ? ticks words ticks : "[" ticks words ticks "](" name ")"
    }
  }
  sub(/<.*>$/, "", name)
  if (!in_link && (name in address_of) && address_of[name] ~ /^(class|struct)[^#]*$/)
    return "[" ticks words ticks "](" address_of[name] ")"
  return ticks words ticks
}

# C++ in a Markdown file: comments, keywords, and the names that the chapters use.
function highlighted(line,   out, comment, at, word) {
  comment = ""
  if ((at = index(line, "//")) > 0) {
    comment = "<span class=\"comment\">" escaped(substr(line, at)) "</span>"
    line = substr(line, 1, at - 1)
  }
  out = ""
  while (match(line, /[A-Za-z_][A-Za-z0-9_]*|"[^"]*"/)) {
    word = substr(line, RSTART, RLENGTH)
    out = out escaped(substr(line, 1, RSTART - 1))
    if (word ~ /^"/) out = out "<span class=\"stringliteral\">" escaped(word) "</span>"
    else if (word in is_keyword) out = out "<span class=\"keyword\">" word "</span>"
    else if (is_linked(word, out, substr(line, RSTART + RLENGTH)))
      out = out "<a class=\"code\" href=\"" address_of[word] "\">" word "</a>"
    else out = out word
    line = substr(line, RSTART + RLENGTH)
  }
  return out escaped(line) comment
}
# A class is one wherever it stands; a function is one where it is called, by its bare name.
function is_linked(word, before, after) {
  if (!(word in address_of)) return 0
  return address_of[word] ~ /^(class|struct)[^#]*$/ || (after ~ /^(<[^>]*>)?\(/ && before !~ /(\.|-&gt;|::)$/)
}

function emit_inline() {
  if (paragraph != "") printf "%s", inline(paragraph)
  paragraph = ""
}

function heading(level, text, id) {
  print substr("######", 1, level) " " text " {#" id "}"
}

# The lines of a Markdown text, one call for each, and finish_markdown at the end. `deeper` shifts headings.
function markdown(line, deeper,   level, text, slug) {
  if (in_code) {
    if (line ~ /^[ \t]*$/) { blanks = blanks "\n"; return }
    if (line ~ /^(    |\t)/) { print blanks unindented(line); blanks = ""; return }
    end_code()
    was_blank = 1
  }
  if (fence != "") {
    if (line ~ "^ *" fence " *$") {
      fence = ""
      print is_cpp ? "</div>\n\\endhtmlonly" : line
      return
    }
    print is_cpp ? "<div class=\"line\">" highlighted(line) "</div>" : line
    return
  }
  if (match(line, /^ *(```+|~~~+)/)) {
    emit_inline()
    fence = line
    sub(/^ */, "", fence)
    match(fence, /^(```+|~~~+)/)
    text = substr(fence, RLENGTH + 1)
    fence = substr(fence, 1, RLENGTH)
    is_cpp = text ~ /^ *(cpp|c\+\+|hpp)/
    if (is_cpp) {
      printf "\n\\htmlonly[block]\n<div class=\"fragment\">"
    } else {
      sub(/(```+|~~~+).*/, "", line)
      print line fence "{.unparsed}"
      if (command != "") print "$ " command
    }
    command = ""
    was_blank = 0
    return
  }
  if (match(line, /^<!-- output of: .* -->/)) {
    emit_inline()
    command = substr(line, 17, RLENGTH - 20)
    sub(/ \(code [0-9]+\)$/, "", command)
    return
  }
  if (line ~ /^[ \t]*$/) {
    emit_inline()
    print ""
    was_blank = 1
    return
  }
  # Doxygen ends these with the paragraph.
  if (line ~ /^<\/?(details|summary)/) {
    emit_inline()
    print "\n\\htmlonly[block]\n" line "\n\\endhtmlonly\n"
    was_blank = 1
    return
  }
  # Four spaces begin code, except in a list.
  if (was_blank && !in_list && line ~ /^(    |\t)/) {
    in_code = 1
    print "~~~~~~~~{.unparsed}\n" unindented(line)
    return
  }
  if (line !~ /^ /) in_list = line ~ /^([-*+]|[0-9]+\.) /
  if (match(line, /^#+ /)) {
    emit_inline()
    level = RLENGTH - 1
    text = substr(line, RLENGTH + 1)
    slug = slug_of(text)
    if (slug in slugs) slug = slug "-" slugs[slug]++
    else slugs[slug] = 1
    if (level == 1 && !has_title) {
      has_title = 1
      heading(1, inline(text), page == "index" ? "mainpage" : page)
      after_title()
    } else {
      heading(level + deeper, inline(text), page "_" slug)
    }
    was_blank = 0
    return
  }
  was_blank = 0
  paragraph = paragraph line "\n"
}
function finish_markdown() {
  emit_inline()
  if (in_code) end_code()
}
function unindented(line) {
  sub(/^(    |\t)/, "", line)
  return line
}
function end_code() {
  print "~~~~~~~~\n"
  blanks = ""
  in_code = 0
}
