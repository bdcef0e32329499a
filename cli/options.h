// The option parser of every `hetu` command: a command states its options as rows; parsing,
// refusing and --help follow from them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetu::cli {

/// One option. `value` names its argument in --help; nullptr makes it a flag (set gets "").
struct Option {
  std::string name;  ///< with its dashes: "--stages", "-o"
  const char* value;
  std::string meaning;
  std::function<void(const std::string&)> set;
};

/// Takes `--name value`, `--name=value` and flags; returns what is no option, in order. Everything
/// after `--` is no option. Throws InvalidArgument: an unknown option (naming the closest known
/// one), a missing or surplus value, or whatever a row's set refuses, with the option named.
std::vector<std::string> parse_options(const std::vector<std::string>& arguments,
                                       const std::vector<Option>& options);

/// True if --help or -h is among the arguments, before any `--`.
bool wants_help(const std::vector<std::string>& arguments);

/// One line per option, wrapped at 100 columns.
std::string help_text(const std::vector<Option>& options);

/// A whole number in [least, most]. Throws InvalidArgument.
std::int64_t to_integer(const std::string& text, std::int64_t least, std::int64_t most);

/// A finite number >= 0. Throws InvalidArgument.
double to_number(const std::string& text);

/// Parts between separators; an empty text has none.
std::vector<std::string> split(const std::string& text, char separator);

/// One of the known words. Throws InvalidArgument naming them; `to_come` are refused as such.
std::string one_of(const std::string& text, const std::vector<const char*>& known,
                   const std::vector<const char*>& to_come = {});

}  // namespace hetu::cli
