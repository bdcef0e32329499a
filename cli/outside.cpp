#include "cli/outside.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "base/error.h"

namespace hetu::cli {
namespace {

// Runs the program in the child process. Only functions that are allowed between fork and exec may
// be called here.
[[noreturn]] void become(const std::vector<char*>& argv, const std::vector<char*>& more, int out,
                         Errors errors) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // So that run_outside can kill the program together with the processes that it starts.
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  if (errors != Errors::Pass) ::dup2(errors == Errors::Capture ? out : nothing, STDERR_FILENO);
  for (char* variable : more) ::putenv(variable);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& w : words) out.push_back(w.data());
  return out;
}

}  // namespace

Ended run_outside(const std::vector<std::string>& words, double timeout_s, Errors errors,
                  const std::vector<std::string>& environment) {
  std::vector<std::string> kept = words, variables = environment;
  std::vector<char*> argv = pointers(kept);
  argv.push_back(nullptr);
  const std::vector<char*> more = pointers(variables);
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(Code::Io, "cannot create a pipe");
  const pid_t child = ::fork();
  if (child < 0) fail(Code::Io, "cannot start a process");
  if (child == 0) become(argv, more, ends[1], errors);
  ::close(ends[1]);
  Ended ended;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  std::array<char, 4096> room = {};
  bool late = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - std::chrono::steady_clock::now());
    pollfd waited = {ends[0], POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&waited, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    late = ready == 0;
    const ssize_t got = ready > 0 ? ::read(ends[0], room.data(), room.size()) : 0;
    if (got <= 0) break;
    ended.output.append(room.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  if (late) ::kill(-child, SIGKILL);  // the whole process group
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ended.status = late ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

std::string own_program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

std::string sibling_program(const std::string& self, const std::string& name) {
  std::error_code ignored;
  for (const std::filesystem::path& program :
       {std::filesystem::path(self), std::filesystem::path(own_program())}) {
    const auto found = program.parent_path() / name;
    if (program.has_parent_path() && std::filesystem::exists(found, ignored)) return found.string();
  }
  return name;
}

}  // namespace hetu::cli
