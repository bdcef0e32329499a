// Whole text files in and out, for the readers and writers of plans and costs.
#pragma once
#include <string>
#include <string_view>

namespace hetu {

/// The file's bytes. Throws Io: cannot be opened or read, is a directory, or is larger than 4 GiB.
std::string read_text(const std::string& path);

/// Writes beside the target and renames, so that the target is whole or untouched. A path that is
/// not a regular file (a pipe, /dev/stdout) is written in place. Throws Io.
void write_text(const std::string& path, std::string_view text);

/// Throws Config if brackets nest deeper than 64: no file of ours does, and a parser that recurses
/// would fall over.
void check_nesting(std::string_view text, const std::string& origin);

/// The text on one line of at most 200 bytes.
std::string one_line(std::string_view text);

}  // namespace hetu
