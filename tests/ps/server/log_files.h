// The files of a log, read and written as bytes, and the store that they give; used by the tests of
// ps/server.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/ps/server/logged_store.h"

namespace hetu::ps::server {

inline LogOptions options_of(const TemporaryFolder& folder) {
  return {.folder = folder.path(), .job = "j1"};
}

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_all(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // the system writes a file that was cut to nothing at once
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A store from the log of a folder.
inline Bytes recovered_from(const TemporaryFolder& folder) {
  LoggedStore logged({.dead_after_s = 0}, options_of(folder));
  return state_of(logged.store());
}

}  // namespace hetu::ps::server
