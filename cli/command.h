// A command of `hetu`: a row in main.cpp and a file of its own.
#pragma once
#include <string>
#include <vector>

namespace hetu::cli {

using Arguments = std::vector<std::string>;  ///< after the command's name

/// `name` may have two words. `run` is the command; where it is nullptr, `python3 -m hetu.<module>`
/// is, with the arguments.
struct Command {
  const char* name;
  const char* meaning;  ///< one line for `hetu --help`
  int (*run)(const Arguments& arguments);
  const char* module;
};

int schedule_command(const Arguments& arguments);
int verify_command(const Arguments& arguments);
int simulate_command(const Arguments& arguments);
int timeline_command(const Arguments& arguments);
int choose_command(const Arguments& arguments);
int compare_command(const Arguments& arguments);
int fill_command(const Arguments& arguments);
int data_check_command(const Arguments& arguments);
int rehearse_command(const Arguments& arguments);
int checkpoint_command(const Arguments& arguments);
int ps_serve_command(const Arguments& arguments);
int ps_status_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

/// The names of all commands, in the order of --help.
std::vector<std::string> command_names();

/// Writes text to a file (beside, then renamed) or, where path is empty, to standard output. Throws
/// Io.
void put(const std::string& text, const std::string& path);

}  // namespace hetu::cli
