// A file that is read at any place, by any number of threads. Read by text_corpus.cpp and
// text_index.cpp.
//
// The file is read, not mapped: a mapped file that another program truncates ends this one by
// SIGBUS, while a read only comes back short.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/text_file.h"

namespace hetu {

/// Size and time of change, which tell one state of a file from another.
struct FileState {
  std::int64_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

class RandomAccessFile {
 public:
  /// Opens a regular file. Throws Io.
  explicit RandomAccessFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int descriptor() const { return file_.descriptor(); }

  /// The state of the file when it was opened.
  const FileState& state() const { return state_; }
  /// Throws Io if the file is no longer what was opened.
  void check_unchanged() const;

  /// Reads `bytes` bytes from byte `at` on. Throws Io if the file ends before.
  void read(std::int64_t at, void* to, std::size_t bytes) const;

  /// Reads the bytes [begin, end) in order and hands them out in pieces of up to a MiB, each with
  /// the place of its first byte. Throws Io if the file ends before.
  void read_through(std::int64_t begin, std::int64_t end,
                    const std::function<void(std::string_view, std::int64_t)>& take) const;

 private:
  FileState state_now() const;

  InputFile file_;
  FileState state_;
};

}  // namespace hetu
