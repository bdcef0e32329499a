// `hetu doctor`: tries each part of Hetu on this machine, reports what works, and names what to
// install for missing parts.
#include "cli/doctor.h"

#include <unistd.h>

#include "base/error.h"
#include "base/machine_cores.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/outside.h"

namespace hetu::cli {

Finding works(std::string text) { return {Finding::State::Works, std::move(text)}; }
Finding missing(std::string text) { return {Finding::State::Missing, std::move(text)}; }
Finding broken(std::string text) { return {Finding::State::Broken, std::move(text)}; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Finding processor() {
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  const int cores = machine_cores();
  return works(fmt::format("{} core{} for this process, {:.1f} GiB of memory", cores,
                           cores == 1 ? "" : "s", gib));
}

Finding python() {
  const std::string name = sibling_program(own_program(), "python3");
  const Ended found =
      run_outside({name, "-c",
                   "import sys, hetu\nprint('Python', sys.version.split()[0] + ', hetu', "
                   "hetu.__version__, 'from', hetu.__file__)"},
                  kTryTimeout_s, Errors::Capture);
  if (found.status == 127) return missing("python3 is not found");
  if (found.status == 0) return works(first_line(found.output));
  const std::string text = found.output.substr(0, found.output.find_last_not_of('\n') + 1);
  return missing("python3 cannot import hetu: " + text.substr(text.rfind('\n') + 1));
}

int doctor_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put("usage: hetu doctor\n"
        "Tests the programs and libraries that Hetu uses on this machine. Prints what works, what "
        "is\n"
        "missing, and what to install. Missing parts are optional; exits 1 if a part that is there "
        "does\n"
        "not work.\n",
        "");
    return 0;
  }
  if (arguments == Arguments{"--hello"}) {  // this process is the worker of a trial
    put(greeting_of_worker() + "\n", "");
    return 0;
  }
  require(arguments.empty(), "takes no arguments, got '{}'", arguments.empty() ? "" : arguments[0]);
  int wrong = 0, absent = 0;
  for (const Trial& trial : trials()) {
    const Finding found = trial.attempt();
    const bool is_broken = found.state == Finding::State::Broken;
    const bool is_missing = found.state == Finding::State::Missing;
    wrong += is_broken ? 1 : 0;
    absent += is_missing ? 1 : 0;
    std::string line = fmt::format("{:<8}{:<15}{}",
                                   is_broken    ? "WRONG"
                                   : is_missing ? "missing"
                                                : "works",
                                   trial.name, found.text);
    if (is_missing && !trial.install.empty()) line += "; install: " + trial.install;
    put(line + "\n", "");
  }
  put(wrong > 0    ? fmt::format("{} parts do not work\n", wrong)
      : absent > 0 ? fmt::format("everything that is installed works; {} optional parts are "
                                 "missing\n",
                                 absent)
                   : "everything works\n",
      "");
  return wrong > 0 ? 1 : 0;
}

}  // namespace hetu::cli
