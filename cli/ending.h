// The end of a command: its exit status, and the text for the user if it failed. Used by main() and
// by the playground.
#pragma once
#include <functional>
#include <string>

namespace hetu::cli {

/// The end of a command.
struct Ending {
  int status = 0;    ///< exit status (see cli/README.md)
  std::string text;  ///< for standard error, with a line end; "" if nothing went wrong
};

/// Runs a command and converts what it throws. A plan that fails its proof gives only the
/// diagnosis. Any other error gives one line with the command's name. `command` may be empty.
Ending run_to_end(const std::string& command, const std::function<int()>& run);

}  // namespace hetu::cli
