// The option parser of all `hetu` commands. A command lists its options as rows, which determine
// parsing, error messages and --help.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/words.h"

namespace hetu::cli {

/// One option. `value` is the placeholder of its argument in --help. If it is nullptr, the option
/// is a flag, and `set` receives "".
struct Option {
  std::string name;  ///< name with its dashes: "--stages", "-o"
  const char* value;
  std::string meaning;
  std::function<void(const std::string&)> set;
};

/// Returns the options that set these fields. Keys of one KEY=VALUE text share an option. A flag
/// that can be negated has two options.
std::vector<Option> options_of(const Fields& fields);

/// Parses `--name value`, `--name=value` and flags, and returns the other arguments in order.
/// Everything after `--` counts as another argument. Throws InvalidArgument for an unknown option
/// (and suggests the closest one), for a missing or surplus value, and for values that `set`
/// refuses. The message begins with the option's name.
std::vector<std::string> parse_options(const std::vector<std::string>& arguments,
                                       const std::vector<Option>& options);

/// Returns true if the arguments contain --help or -h before any `--`.
bool wants_help(const std::vector<std::string>& arguments);

/// Returns a paragraph wrapped at 100 columns. Its own line breaks stay.
std::string wrapped(const std::string& text);

/// Returns the help of all options, one entry per option, wrapped at 100 columns.
std::string help_text(const std::vector<Option>& options);

/// One row of a help text.
struct HelpRow {
  std::string name;
  std::string meaning;  ///< may have several lines
};

/// Formats rows in two columns, wrapped at 100 columns. Meanings start at the column `indent`. If a
/// name leaves no gap of two spaces before that column, its meaning starts on the next line.
std::string two_columns(const std::vector<HelpRow>& rows, std::size_t indent);

}  // namespace hetu::cli
