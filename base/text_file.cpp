// Files that users name need care in three respects:
//
// - Opening must not block. A FIFO is opened with O_NONBLOCK and then refused. Names of open
//   descriptors, such as /dev/stdin, are links to /proc/self/fd/N and are read as they are.
// - A file must not be lost when writing fails. replace_file writes FILE.PID.tmp in the folder of
// the
//   link's target, copies the permissions, and renames it.
// - Parsers must not exhaust memory or stack. Size and nesting are checked before parsing.
#include "base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace hetu {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 64;                             // levels of nested brackets
constexpr std::size_t kMostJson = std::size_t{1} << 30;  // bytes
constexpr std::size_t kMostYaml = std::size_t{16} << 20;
constexpr int kMostLinks = 40;  // the limit of Linux

std::string reason() { return std::strerror(errno); }

// An open descriptor that is closed on destruction.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  int close() { return number_ < 0 ? 0 : ::close(release()); }

 private:
  int number_;
};

// Returns the path with all links in its folders resolved. Its last part may still be a link.
fs::path with_real_folder(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
  return error ? path : folder / path.filename();
}

// Returns true for an entry of /proc/PID/fd. It names an open descriptor, whatever its link says.
bool is_descriptor(const fs::path& path) {
  return path.native().rfind("/proc/", 0) == 0 && path.parent_path().filename() == "fd";
}

// Returns the path with all links resolved. The file itself need not exist.
fs::path followed(const std::string& path) {
  fs::path at = with_real_folder(path);
  std::error_code error;
  for (int links = 0; !is_descriptor(at) && fs::is_symlink(fs::symlink_status(at, error));
       ++links) {
    if (links == kMostLinks) fail(Code::Io, "{}: too many levels of symbolic links", path);
    const fs::path to = fs::read_symlink(at, error);
    if (error) fail(Code::Io, "{}: the symbolic link cannot be read: {}", path, error.message());
    at = with_real_folder(at.parent_path() / to);
  }
  return at;
}

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

std::string read_all(int descriptor, const std::string& path, std::int64_t most) {
  std::string text;
  for (std::string block(1 << 20, '\0');;) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(Code::Io, "{}: cannot be read: {}", path, reason());
    if (count == 0) return text;
    text.append(block, 0, static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(text.size()) > most)
      fail(Code::Io, "{}: is larger than {} bytes", path, most);
  }
}

void write_to(const std::string& path, std::string_view text) {
  Descriptor file(open_output(path));
  while (!text.empty()) {
    const ssize_t count = ::write(file.number(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(Code::Io, "{}: cannot be written: {}", path, reason());
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (file.close() != 0) fail(Code::Io, "{}: cannot be written: {}", path, reason());
}

// Opens without blocking, and then clears O_NONBLOCK for later users of the descriptor.
int open_regular(const std::string& path, int access, std::int64_t& bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | access));
  if (file.number() < 0) fail(Code::Io, "{}: cannot be opened: {}", path, reason());
  struct stat info {};
  if (::fstat(file.number(), &info) != 0) fail(Code::Io, "{}: {}", path, reason());
  if (!S_ISREG(info.st_mode))
    fail(Code::Io, "{}: is {}; give a regular file", path, kind_of(info.st_mode));
  ::fcntl(file.number(), F_SETFL, ::fcntl(file.number(), F_GETFL) & ~O_NONBLOCK);
  bytes = info.st_size;
  return file.release();
}

// Checks how deep YAML nests by indentation alone. Each level takes a column, or a "- " on the same
// line.
void check_indentation(std::string_view text, const std::string& origin) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    int dashes = 0;
    for (const char c : line) {
      if (c != ' ' && c != '-' && c != '?' && c != ':') break;
      dashes += c != ' ';
    }
    const std::size_t spaces = std::min(line.find_first_not_of(' '), line.size());
    if (dashes > kDeepest || (spaces > 4U * kDeepest && spaces < line.size()))
      fail(Code::Config, "{}: lists and maps nest deeper than {}", origin, kDeepest);
    begin = end + 1;
  }
}

// Checks how deep brackets nest. With `quotes`, brackets in quoted text don't count.
void check_brackets(std::string_view text, bool quotes, const std::string& origin, Code code) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = quotes;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) fail(code, "{}: brackets nest deeper than {}", origin, kDeepest);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

void check_size(std::string_view text, std::size_t most, const std::string& origin, Code code) {
  if (text.size() > most)
    fail(code, "{}: is {} bytes long; at most {} are allowed", origin, text.size(), most);
}

// Returns a message with the name that the user gave instead of a temporary one.
std::string with_name(std::string message, const std::string& temporary, const std::string& path) {
  const std::size_t at = message.find(temporary);
  return at == std::string::npos ? message : message.replace(at, temporary.size(), path);
}

}  // namespace

InputFile::InputFile(const std::string& path, int access)
    : path_(path), descriptor_(open_regular(path, access, bytes_)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int InputFile::release() { return std::exchange(descriptor_, -1); }

void check_regular(const std::string& path) { const InputFile file(path); }

std::string read_text(const std::string& path, std::int64_t most) {
  if (is_descriptor(followed(path))) {
    const Descriptor given(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (given.number() < 0) fail(Code::Io, "{}: cannot be opened: {}", path, reason());
    return read_all(given.number(), path, most);
  }
  const InputFile file(path);
  return read_all(file.descriptor(), path, most);
}

int open_output(const std::string& path) {
  const bool is_given = is_descriptor(followed(path));
  const int how = is_given ? O_APPEND : O_CREAT | O_TRUNC;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | how, 0666);
  if (descriptor < 0) fail(Code::Io, "{}: cannot be written: {}", path, reason());
  return descriptor;
}

void replace_file(const std::string& path,
                  const std::function<void(const std::string& temporary)>& write) {
  const fs::path target = followed(path);
  std::error_code error;
  const fs::file_status there = fs::status(target, error);
  if (is_descriptor(target) || (fs::exists(there) && !fs::is_regular_file(there))) {
    if (fs::is_directory(there)) fail(Code::Io, "{}: is a directory; name a file", path);
    return write(path);
  }
  const std::string temporary = fmt::format("{}.{}.tmp", target.string(), ::getpid());
  try {
    write(temporary);
    if (fs::exists(there)) fs::permissions(temporary, there.permissions(), error);
    fs::rename(temporary, target, error);
    if (error) fail(Code::Io, "{}: cannot be written: {}", path, error.message());
  } catch (const Error& e) {
    fs::remove(temporary, error);
    throw Error(e.code(), with_name(e.what(), temporary, path));
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
}

void write_text(const std::string& path, std::string_view text) {
  replace_file(path, [text](const std::string& temporary) { write_to(temporary, text); });
}

std::string_view bounded_json(std::string_view text, const std::string& origin, Code code) {
  check_size(text, kMostJson, origin, code);
  check_brackets(text, true, origin, code);
  return text;
}

const std::string& bounded_yaml(const std::string& text, const std::string& origin) {
  check_size(text, kMostYaml, origin, Code::Config);
  check_brackets(text, false, origin, Code::Config);
  check_indentation(text, origin);
  return text;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 200;
  std::string line(text.substr(0, kMost));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text.size() > kMost ? line + "…" : line;
}

}  // namespace hetu
