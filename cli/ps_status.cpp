// `hetu ps status`: reports the state of parameter servers.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "base/words.h"
#include "cli/command.h"
#include "cli/options.h"
#include "net/wire/connection_file.h"
#include "ps/client/ask_status.h"

namespace hetu::cli {
namespace {

struct Request {
  std::string where;
  std::string job;
  std::string format = "text";
  double watch_s = 0;
  double timeout_s = 5;
};

std::vector<Option> options_of(Request& r) {
  const auto positive = [](double& to) {
    return [&to](const std::string& text) {
      to = to_number(text);
      require(to > 0 && to <= 1e6, "must be above 0 s and at most 1000000 s, got {}",
              shortened(text));
    };
  };
  return {{"--job", "NAME",
           "a job of heturun on this host: its name (HETU_JOB), or the process id of "
           "heturun",
           [&r](const std::string& text) { r.job = text; }},
          {"--format", "FORMAT", "text (default), json or prometheus",
           [&r](const std::string& text) {
             r.format = one_of(text, {"text", "json", "prometheus"});
           }},
          {"--watch", "S", "ask again every S seconds, until SIGINT", positive(r.watch_s)},
          {"--timeout", "S", "how long a server may take to answer (default: 5)",
           positive(r.timeout_s)}};
}

std::string help() {
  Request unused;
  return "usage: hetu ps status FILE|ADDRESS|--job NAME [options]\n"
         "Shows tables, clocks, clients and bytes of all parameter servers of a job. FILE is the "
         "connection\n"
         "file of hetu ps serve; ADDRESS is the value of HETU_SERVERS in a worker. Asking does not "
         "delay\n"
         "the job. Exits 5 if a server does not answer.\n\n"
         "Options:\n" +
         help_text(options_of(unused));
}

/// Returns a variable of a process's initial environment. Returns "" if it is not set, or if the
/// process belongs to another user.
std::string variable_of(const std::filesystem::path& process, const std::string& name) {
  std::ifstream file(process / "environ", std::ios::binary);
  for (std::string text; std::getline(file, text, '\0');) {
    if (text.rfind(name + "=", 0) == 0) return text.substr(name.size() + 1);
  }
  return "";
}

/// Returns the process id of a process's parent; 0 if the process has ended.
int parent_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');
  int parent = 0;
  if (name_end != std::string::npos) {
    std::sscanf(text.c_str() + name_end + 1, " %*c %d", &parent);
  }
  return parent;
}

bool is_below(int pid, int of) {
  for (; pid > 1; pid = parent_of(pid)) {
    if (pid == of) return true;
  }
  return false;
}

// Returns the servers' address that heturun gave to the workers of a job. Reads it from the
// environment of one worker on this host.
std::string address_of_job(const std::string& job) {
  const bool is_pid = job.size() < 12 && job.find_first_not_of("0123456789") == std::string::npos;
  const int pid = is_pid ? static_cast<int>(to_integer(job, 1, 1 << 30)) : 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string address = variable_of(entry.path(), "HETU_SERVERS");
    if (address.empty()) continue;
    if (is_pid ? is_below(std::stoi(name), pid) : variable_of(entry.path(), "HETU_JOB") == job) {
      return address;
    }
  }
  fail(Code::Config,
       "no worker of job '{}' runs on this host as your user; give the process id of its heturun, "
       "or the value of HETU_JOB in its workers",
       shortened(job));
}

Request parse(const Arguments& arguments) {
  Request r;
  const std::vector<std::string> rest = parse_options(arguments, options_of(r));
  require(rest.size() + (r.job.empty() ? 0 : 1) == 1,
          "needs exactly one FILE, ADDRESS or --job NAME; see --help");
  r.where = r.job.empty() ? ps::address_from(rest[0]) : address_of_job(r.job);
  return r;
}

/// Asks all servers and prints the answers. Returns true if all of them answered.
bool print_status(const Request& r) {
  const std::vector<ps::AskedStatus> all = ps::ask_status(r.where, r.timeout_s);
  put(r.format == "json"         ? ps::status_json(all)
      : r.format == "prometheus" ? ps::status_prometheus(all)
                                 : ps::status_text(all),
      "");
  bool answered = true;
  for (std::size_t s = 0; s < all.size(); ++s) answered = answered && all[s].failure.empty();
  return answered;
}

}  // namespace

int ps_status_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(help(), ""), 0;
  const Request r = parse(arguments);
  while (r.watch_s > 0) {
    print_status(r);
    std::this_thread::sleep_for(std::chrono::duration<double>(r.watch_s));
    put("\n", "");
  }
  return print_status(r) ? 0 : exit_status(Code::Comm);
}

}  // namespace hetu::cli
