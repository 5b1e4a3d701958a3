#include "engine/basics/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace shard {

namespace {

/// The number of columns that an environment variable says; 0 where it says none.
int columns_in(const char* variable) {
  const char* text = std::getenv(variable);
  int columns = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), columns);
  return std::max(columns, 0);
}

}  // namespace

bool speaks_to_terminal() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return std::getenv("SHARDBOOK_TERMINAL") != nullptr;
  return isatty(STDOUT_FILENO) == 1;
}

int output_columns(int otherwise) {
  int columns = columns_in("COLUMNS");
  if (columns == 0 && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr)
    columns = columns_in("SHARDBOOK_TERMINAL");
  else if (winsize size{}; columns == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
    columns = size.ws_col;
  return columns > 0 ? columns : otherwise;
}

int drawing_columns() {
  return std::min(output_columns(100), 100);
}

int width_of(const std::string& text) {
  return static_cast<int>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

int width_of_lines(const std::string& text) {
  int width = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) width = std::max(width, width_of(line));
  return width;
}

std::string wrapped(const std::string& words, int width, const std::string& indent) {
  std::string text;
  int column = 0;
  std::istringstream in(words);
  for (std::string word; in >> word;) {
    if (column > 0 && column + 1 + width_of(word) > width) {
      text += '\n' + indent;
      column = 0;
    } else if (column > 0) {
      text += ' ';
      ++column;
    }
    text += word;
    column += width_of(word);
  }
  return text;
}

std::string for_reader(const std::string& lines) {
  if (!speaks_to_terminal()) return lines;
  std::string text;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const std::string indent(std::min(line.find_first_not_of(' '), line.size()), ' ');
    const int room = output_columns() - width_of(indent) - 2;
    text += width_of(line) <= output_columns() ? line : indent + wrapped(line, room, indent + "  ");
    text += in.eof() ? "" : "\n";
  }
  return text;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<int> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(static_cast<std::size_t>(widths[i] - width_of(row[i])), ' ');
      line += (i == 0 ? "" : "  ") + (i < left ? row[i] + space : space + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace shard
