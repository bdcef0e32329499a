// Files in and out: the one opener of files that somebody names, the one writer that replaces a
// file as a whole, and the bounds of every text that goes to a parser.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace hetu {

/// A regular file that is open for reading; closed on destruction.
class InputFile {
 public:
  /// Opens the file without waiting: opening a FIFO in the usual way would block until somebody
  /// writes into it. Throws Io if it cannot be opened or is not a regular file. `access` are
  /// further flags of open(2).
  explicit InputFile(const std::string& path, int access = 0);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::int64_t bytes() const { return bytes_; }  ///< size at the time of opening
  const std::string& path() const { return path_; }
  /// Hands the descriptor to the caller, who closes it.
  int release();

 private:
  std::string path_;
  std::int64_t bytes_ = 0;
  int descriptor_;
};

/// Throws Io unless the path names a regular file that can be opened for reading. For libraries
/// that open files by name.
void check_regular(const std::string& path);

/// Returns the file's bytes. Reads regular files, and open descriptors by name (/dev/stdin,
/// /dev/fd/3). Throws Io: cannot be opened or read, is no such file, or is larger than `most`
/// bytes.
std::string read_text(const std::string& path, std::int64_t most = std::int64_t{4} << 30);

/// Replaces a file as a whole: `write` gets the name of a new file beside it, which is then
/// renamed, so that the file is whole or untouched. Symbolic links are followed and stay. A path
/// that is not a regular file (a device, a FIFO, /dev/stdout) is not replaced: `write` gets the
/// path itself, and must write without truncating or syncing by force. Throws Io, and what `write`
/// throws.
void replace_file(const std::string& path,
                  const std::function<void(const std::string& beside)>& write);

/// Writes text with replace_file. Throws Io.
void write_text(const std::string& path, std::string_view text);

/// Opens a file that replace_file names, for writing: creates or empties a regular file, and
/// appends to what is no regular file. Throws Io. The caller closes the descriptor.
int open_output(const std::string& path);

/// Returns the text if a parser of JSON may read it: at most 1 GiB, and brackets at most 64 deep.
/// No file of ours is larger or deeper. A document takes many times its size in memory, and
/// functions that walk it recurse, so that deeper files would overflow the stack. Every JSON parser
/// gets its text from here: `json::parse(bounded_json(text, origin))`; lint refuses others. Throws
/// `code`, naming `origin`.
std::string_view bounded_json(std::string_view text, const std::string& origin,
                              Code code = Code::Config);

/// The same for YAML: at most 16 MiB, and brackets and indentation at most 64 deep.
const std::string& bounded_yaml(const std::string& text, const std::string& origin);

/// The text on one line of at most 200 bytes.
std::string one_line(std::string_view text);

}  // namespace hetu
