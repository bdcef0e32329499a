// Starts jobs under mpirun and collects their exit statuses and output.
#pragma once
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace hetu {

struct Ended {
  int status = -1;
  double seconds = 0;
  std::string output;  ///< standard output and error
};

/// Keeps Open MPI 5 from warning about networks that it can't use.
inline constexpr const char* kNoTcp = "--mca btl ^tcp";

/// Runs `mpirun OPTIONS -np WORKERS COMMAND`, with the mpirun that CMake found. Each job has a
/// folder for its files: if two jobs create or remove the same file at once, one of them fails.
inline Ended run_job(int workers, const std::string& command, const std::string& options = kNoTcp) {
  char folder[] = "/tmp/hetu-mpirun-XXXXXX";
  Ended ended;
  if (!mkdtemp(folder)) return ended;
  const std::string line =
      std::string("TMPDIR=") + folder + " " + HETU_MPIRUN + " -np " + std::to_string(workers) +
      " --bind-to none --map-by slot:OVERSUBSCRIBE " + options + " " + command + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) return ended;
  char part[4096];
  while (std::fgets(part, sizeof part, pipe)) ended.output += part;
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::filesystem::remove_all(folder);
  return ended;
}

}  // namespace hetu
