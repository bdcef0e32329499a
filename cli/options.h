// The option parser of every `hetu` command: a command states its options as rows; parsing,
// refusing and --help follow from them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/words.h"

namespace hetu::cli {

/// One option. `value` names its argument in --help; nullptr makes it a flag (set gets "").
struct Option {
  std::string name;  ///< with its dashes: "--stages", "-o"
  const char* value;
  std::string meaning;
  std::function<void(const std::string&)> set;
};

/// The rows that tell these fields. Keys of one KEY=VALUE text share a row, and a flag that may be
/// negated has two.
std::vector<Option> options_of(const Fields& fields);

/// Takes `--name value`, `--name=value` and flags; returns what is no option, in order. Everything
/// after `--` is no option. Throws InvalidArgument: an unknown option (naming the closest known
/// one), a missing or surplus value, or whatever a row's set refuses, with the option named.
std::vector<std::string> parse_options(const std::vector<std::string>& arguments,
                                       const std::vector<Option>& options);

/// True if --help or -h is among the arguments, before any `--`.
bool wants_help(const std::vector<std::string>& arguments);

/// One line per option, wrapped at 100 columns.
std::string help_text(const std::vector<Option>& options);

/// One row of a help text.
struct HelpRow {
  std::string name;
  std::string meaning;  ///< may have several lines
};

/// Two columns, with names of any length: the meanings start at the column `indent`, and below a
/// name that leaves no gap of two spaces before it. Wrapped at 100 columns.
std::string two_columns(const std::vector<HelpRow>& rows, std::size_t indent);

}  // namespace hetu::cli
