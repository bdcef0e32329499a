// Runs other programs and captures their output. Used by doctor, completion and plan functions.
#pragma once
#include <string>
#include <vector>

namespace hetu::cli {

/// Destination of a program's standard error.
enum class Errors { Drop, Capture, Pass };

/// The exit status and output of a program.
struct Ended {
  int status = 0;      ///< 127: it cannot be started; 124: it was killed after `timeout_s` seconds
  std::string output;  ///< standard output; with Errors::Capture, standard error too
};

/// Runs a program, which is looked up in PATH, without input. The program ends with this process.
/// `words` are its name and arguments. `environment` holds "NAME=value" entries that are added to
/// the environment of this process.
Ended run_outside(const std::vector<std::string>& words, double timeout_s,
                  Errors errors = Errors::Drop, const std::vector<std::string>& environment = {});

/// Returns the path of this program's file.
std::string own_program();

/// Returns the path of the program `name` in the folder of this one, such as a virtual
/// environment's bin. Tries the folder in `self` (as this program was called), and then the actual
/// folder. Returns `name` for a lookup in PATH if neither has it.
std::string sibling_program(const std::string& self, const std::string& name);

}  // namespace hetu::cli
