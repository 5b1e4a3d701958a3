#pragma once

#include <string>
#include <vector>

namespace shard {

/// Whether standard output is a terminal. Under mpirun it always looks like one, so chapters/launch.py says whether it
/// is: SHARDBOOK_TERMINAL has the number of its columns.
bool speaks_to_terminal();
/// How many columns a line may have: what COLUMNS says, or else the terminal, or else `otherwise`.
int output_columns(int otherwise = 80);
/// The same for a drawing, which pages show 100 columns wide: no more than these.
int drawing_columns();

/// Columns that a text takes on the screen: bytes that begin a character in UTF-8.
int width_of(const std::string& text);
/// That of its longest line.
int width_of_lines(const std::string& text);
/// The words in lines of at most `width` columns; a longer word has a line of its own. Lines behind the first one begin
/// with `indent`, which does not count.
std::string wrapped(const std::string& words, int width, const std::string& indent = "");
/// Lines for a person: wrapped on a terminal that is narrower, and whole in a pipe, where programs read them.
std::string for_reader(const std::string& lines);

/// Rows of cells as text. Columns are as wide as their widest cell, with two spaces between them; the first `left` ones
/// are flush left, the others right. Each row ends with a line feed, and none with a space.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left = 1);

}  // namespace shard
