// A file's bytes in memory, as long as it lives. Read by text_corpus.cpp.
#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hetu {

/// What tells one state of a file from another.
struct FileState {
  std::int64_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

class MappedFile {
 public:
  /// Throws Io.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {data_, static_cast<std::size_t>(state_.bytes)}; }
  /// When it was opened, and now. Throws Io.
  const FileState& state() const { return state_; }
  FileState state_now() const;
  int descriptor() const { return fd_; }

 private:
  const std::string path_;
  int fd_ = -1;
  FileState state_;
  const char* data_ = nullptr;
};

}  // namespace hetu
