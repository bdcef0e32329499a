// The one rule for what a command writes into the file that -o names: --format decides, else the
// suffix of the file. Read by every command that has -o.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// A format that a command writes.
struct OutputFormat {
  std::string name;                   ///< as --format takes it; "" is the command's own text
  std::vector<std::string> suffixes;  ///< of its files, in lower case: ".svg"
};

/// Returns the format for a file. `given` is the value of --format and `output` that of -o; both
/// are
/// "" if not given. Without --format the suffix chooses the first format that has it. Returns "",
/// the command's own text, if there is no --format and no suffix. With --format any suffix is
/// accepted that isn't one of another format. Throws InvalidArgument: an unknown suffix, or a
/// suffix that contradicts --format. `flag` names the option of the file, if it isn't -o: --format
/// doesn't concern such a file.
std::string output_format(const std::string& given, const std::string& output,
                          const std::vector<OutputFormat>& formats, const char* flag = "-o");

/// The formats of schedule and simulate. rehearse and verify write some of them.
std::vector<OutputFormat> plan_formats();

}  // namespace hetu
