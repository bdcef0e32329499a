// A command of `hetu`: a row in main.cpp and a source file.
#pragma once
#include <string>
#include <vector>

namespace hetu::cli {

using Arguments = std::vector<std::string>;  ///< arguments after the command's name

/// A command. `name` may consist of two words. `run` executes the command. If `run` is nullptr, the
/// tool runs `python3 -m hetu.<module>` with the arguments instead.
struct Command {
  const char* name;
  const char* meaning;  ///< one line for `hetu --help`
  int (*run)(const Arguments& arguments);
  const char* module;  ///< Python module; nullptr if `run` is set
};

/// The commands. Each parses its arguments, writes its result, and returns the exit status. Throws
/// Error, which main() prints.
int schedule_command(const Arguments& arguments);
int verify_command(const Arguments& arguments);
int simulate_command(const Arguments& arguments);
int timeline_command(const Arguments& arguments);
int choose_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int compare_command(const Arguments& arguments);
int fill_command(const Arguments& arguments);
int data_check_command(const Arguments& arguments);
int rehearse_command(const Arguments& arguments);
int checkpoint_command(const Arguments& arguments);
int ps_serve_command(const Arguments& arguments);
int ps_status_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

/// Returns the names of all commands, in the order of --help.
std::vector<std::string> command_names();

/// Writes text to a file, which is replaced atomically, or to standard output if `path` is empty.
/// Throws Io.
void put(const std::string& text, const std::string& path);

}  // namespace hetu::cli
