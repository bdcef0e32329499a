// The rule for the format of a file that -o names: --format decides if given, and otherwise the
// suffix. Read by every command with -o.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// A format that a command can write.
struct OutputFormat {
  std::string name;                   ///< value of --format; "" is the command's own text
  std::vector<std::string> suffixes;  ///< suffixes of its files in lower case, such as ".svg"
};

/// Returns the format for a file. `given` is the value of --format and `output` the value of -o;
/// both are "" if not given. Without --format the suffix chooses the first format that has it.
/// Returns "", the command's own text, without --format and suffix. With --format, any suffix is
/// accepted that doesn't belong to another format. Throws InvalidArgument for an unknown suffix, or
/// a suffix that contradicts --format. `flag` names the option of the file if it isn't -o; --format
/// doesn't apply to such a file.
std::string output_format(const std::string& given, const std::string& output,
                          const std::vector<OutputFormat>& formats, const char* flag = "-o");

/// Returns the suffixes of these formats, such as ".txt, .json".
std::string known_suffixes(const std::vector<OutputFormat>& formats);

/// Returns the formats of schedule and simulate. rehearse and verify write some of them.
std::vector<OutputFormat> plan_formats();

}  // namespace hetu
