# A Markdown file as a page. With the functions of markdown.awk; beside their variables,
#   file      the Markdown file, relative to root
#   way       what stands below the title: where one can go from here
#   toc       1 where the page begins with its sections
#   contents  a file with what replaces the line <!-- contents -->

function after_title() {
  if (way != "") print "\n\\htmlonly[block]\n" way "\n\\endhtmlonly\n"
  if (toc) print "\n\\tableofcontents{HTML:2}\n"
}

BEGIN {
  load_tables()
  page = page_of(file)
}
/^<!-- contents -->$/ {
  while ((getline line < contents) > 0) print line
  next
}
{ markdown($0, 0) }
END {
  finish_markdown()
}
