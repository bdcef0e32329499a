// The commands of a build without training. Commands that need training explain what to do, and
// `hetu doctor` tests what there is.
#include "base/no_training.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/options.h"
#include "cli/training.h"

namespace hetu::cli {
namespace {

[[noreturn]] void fail_without_training() {
  fail(Code::Unsupported, "{}", needs_training("this command"));
}

// Serves --help, because shell completion asks every command for it.
int refuse(const char* name, const Arguments& arguments) {
  if (!wants_help(arguments)) fail_without_training();
  put(fmt::format("usage: hetu {} …\nNot part of this installation, which has only the tools for "
                  "schedules.\n",
                  name),
      "");
  return 0;
}

}  // namespace

int rehearse_command(const Arguments& arguments) { return refuse("rehearse", arguments); }
int checkpoint_command(const Arguments& arguments) { return refuse("checkpoint", arguments); }
int data_check_command(const Arguments& arguments) { return refuse("data check", arguments); }
int ps_serve_command(const Arguments& arguments) { return refuse("ps serve", arguments); }
int ps_status_command(const Arguments& arguments) { return refuse("ps status", arguments); }

void require_module(const std::string& module) {
  if (module.rfind("compat.varuna.", 0) != 0) fail_without_training();
}

std::vector<Trial> trials() {
  const std::string sources = "Hetu from its sources, with ./run install (see INSTALL.md)";
  return {{"processor", "", processor},
          {"Python", "Python 3.10 or newer, and Hetu's wheel in its environment", python},
          {"training", sources, [] { return missing("not in this installation"); }}};
}

std::string greeting_of_worker() { fail_without_training(); }

}  // namespace hetu::cli
