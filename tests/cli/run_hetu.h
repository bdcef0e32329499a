// Runs the hetu binary as a user does, in a temporary folder of the test.
#pragma once
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/text_file.h"
#include "tests/temporary_folder.h"

namespace hetu {

/// The exit status and output of a command.
struct Outcome {
  int status = -1;
  std::string out, err;
};

/// Returns a folder of this process, which is removed when the process ends.
inline const std::filesystem::path& folder() {
  static const TemporaryFolder kFolder;
  static const std::filesystem::path kPath = kFolder.path();
  return kPath;
}

/// Runs `hetu ARGUMENTS` through a shell in that folder.
inline Outcome hetu(const std::string& arguments) {
  const std::string errors = folder() / "stderr";
  const std::string command =
      fmt::format("cd '{}' && '{}' {} 2>'{}'", folder().string(), HETU_BINARY, arguments, errors);
  Outcome o;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> block{};
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), pipe))
    o.out.append(block.data(), n);
  const int status = ::pclose(pipe);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  o.err = read_text(errors);
  return o;
}

/// Writes a file into the folder and returns its name.
inline std::string file(const std::string& name, const std::string& text) {
  write_text(folder() / name, text);
  return name;
}

}  // namespace hetu
