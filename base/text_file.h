// Reading and replacing files. Holds the opener for files that a user names, and the writer that
// replaces a file atomically. Also checks the limits of every text that goes to a parser.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace hetu {

/// A regular file that is open for reading. It is closed on destruction.
class InputFile {
 public:
  /// Opens the file without blocking; opening a FIFO normally would wait for a writer. `access`
  /// holds further flags of open(2). Throws Io if the file cannot be opened or is not a regular
  /// file.
  explicit InputFile(const std::string& path, int access = 0);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::int64_t bytes() const { return bytes_; }  ///< size at the time of opening
  const std::string& path() const { return path_; }
  /// Passes the descriptor to the caller, who must close it.
  int release();

 private:
  std::string path_;
  std::int64_t bytes_ = 0;
  int descriptor_;
};

/// Throws Io unless the path names a regular file that can be opened for reading. For use before
/// libraries that open files by name.
void check_regular(const std::string& path);

/// Returns the bytes of a file. Reads regular files, and open descriptors by name (/dev/stdin,
/// /dev/fd/3). Throws Io if the path cannot be opened or read, is of another kind, or holds more
/// than `most` bytes.
std::string read_text(const std::string& path, std::int64_t most = std::int64_t{4} << 30);

/// Replaces a file atomically. Calls `write` with the name of a new file in the same folder, and
/// then renames that file. The old file therefore stays intact if `write` fails. Symbolic links are
/// followed and kept.
///
/// If the path exists and is not a regular file (a device, a FIFO, /dev/stdout), it is not
/// replaced. `write` then gets the path itself, and must not require truncation or a sync to
/// succeed. Throws Io, and what `write` throws.
void replace_file(const std::string& path,
                  const std::function<void(const std::string& temporary)>& write);

/// Writes text with replace_file. Throws Io.
void write_text(const std::string& path, std::string_view text);

/// Opens a file for writing, under the name that replace_file passes. Creates or truncates a
/// regular file; appends to an open descriptor such as /dev/stdout. Throws Io. The caller closes
/// the descriptor.
int open_output(const std::string& path);

/// Returns `text` if it is safe to parse as JSON: at most 1 GiB, with brackets nested at most 64
/// deep. No file of Hetu is larger or deeper. A document takes many times its size in memory.
/// Functions that walk it recurse, so a deeper document would overflow the stack. Every JSON parser
/// must get its text from here: `json::parse(bounded_json(text, origin))`. Lint refuses other
/// calls. Throws `code` and names `origin`.
std::string_view bounded_json(std::string_view text, const std::string& origin,
                              Code code = Code::Config);

/// As above, for YAML: at most 16 MiB, with brackets and indentation nested at most 64 deep.
const std::string& bounded_yaml(const std::string& text, const std::string& origin);

/// Returns the text on one line of at most 200 bytes, for messages. Longer text ends in "…".
std::string one_line(std::string_view text);

}  // namespace hetu
