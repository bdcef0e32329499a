// A file that any number of threads read at any offset. Used by text_corpus.cpp and text_index.cpp.
//
// The file is read, not mapped: if another program truncates a mapped file, this process dies of
// SIGBUS, while a read only returns fewer bytes.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/text_file.h"

namespace hetu {

/// Size and modification time, which distinguish the states of a file.
struct FileState {
  std::int64_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

/// A file that is open for reading at any offset.
class RandomAccessFile {
 public:
  /// Opens a regular file. Throws Io.
  explicit RandomAccessFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int descriptor() const { return file_.descriptor(); }

  /// Returns the state of the file when it was opened.
  const FileState& state() const { return state_; }
  /// Throws Io if the file has changed since it was opened.
  void check_unchanged() const;

  /// Reads `bytes` bytes from offset `at` on. Throws Io if the file ends before that.
  void read(std::int64_t at, void* to, std::size_t bytes) const;

  /// Reads the bytes [begin, end) in order and passes them to `take` in blocks of up to 1 MiB, each
  /// with its offset. Throws Io if the file ends before `end`.
  void read_through(std::int64_t begin, std::int64_t end,
                    const std::function<void(std::string_view, std::int64_t)>& take) const;

 private:
  FileState state_now() const;

  InputFile file_;
  FileState state_;
};

}  // namespace hetu
