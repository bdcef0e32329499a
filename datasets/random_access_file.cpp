#include "datasets/random_access_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace hetu {
namespace {

FileState state_of(const struct stat& found) {
  constexpr std::int64_t kSecond = 1000000000;
  return {found.st_size, found.st_mtim.tv_sec * kSecond + found.st_mtim.tv_nsec};
}

[[noreturn]] void fail_to(const char* act, const std::string& path) {
  fail(Code::Io, "{}: cannot be {}: {}", path, act, std::strerror(errno));
}

}  // namespace

RandomAccessFile::RandomAccessFile(const std::string& path) : file_(path), state_(state_now()) {}

FileState RandomAccessFile::state_now() const {
  struct stat found = {};
  if (fstat(file_.descriptor(), &found) != 0) fail_to("inspected", path());
  return state_of(found);
}

void RandomAccessFile::check_unchanged() const {
  const FileState now = state_now();
  if (state_ == now) return;
  fail(Code::Io, "{}: has changed since it was opened: {} bytes then, {} now; start again", path(),
       state_.bytes, now.bytes);
}

void RandomAccessFile::read(std::int64_t at, void* to, std::size_t bytes) const {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = pread(file_.descriptor(), out, bytes, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      fail(Code::Io, "{}: cannot be read at byte {}: {}", path(), at, std::strerror(errno));
    if (count == 0) {
      check_unchanged();
      fail(Code::Io, "{}: ends at byte {}, where more was expected", path(), at);
    }
    out += count;
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

void RandomAccessFile::read_through(
    std::int64_t begin, std::int64_t end,
    const std::function<void(std::string_view, std::int64_t)>& take) const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  std::vector<char> piece(static_cast<std::size_t>(std::min(kPiece, end - begin)));
  for (std::int64_t at = begin; at < end;) {
    const auto bytes = static_cast<std::size_t>(std::min(kPiece, end - at));
    read(at, piece.data(), bytes);
    take({piece.data(), bytes}, at);
    at += static_cast<std::int64_t>(bytes);
  }
}

}  // namespace hetu
