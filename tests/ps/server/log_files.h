// The files of a log as bytes, and the store that recovers from them; used by the tests of
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
  // The system writes a truncated file back at once, so the file is removed first.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Returns the state of a store that is recovered from a folder's log.
inline Bytes recovered_from(const TemporaryFolder& folder) {
  LoggedStore logged({.dead_after_s = 0}, options_of(folder));
  return state_of(logged.store());
}

}  // namespace hetu::ps::server
