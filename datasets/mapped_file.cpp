#include "datasets/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "graph/base/error.h"

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

MappedFile::MappedFile(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail_to("opened", path);
  struct stat found = {};
  const bool is_file = fstat(fd_, &found) == 0 && S_ISREG(found.st_mode);
  void* data = nullptr;
  if (is_file && found.st_size > 0)
    data = mmap(nullptr, static_cast<std::size_t>(found.st_size), PROT_READ, MAP_SHARED, fd_, 0);
  if (!is_file || data == MAP_FAILED) {
    const int error = is_file ? errno : EISDIR;
    close(fd_);
    errno = error;
    fail_to("read", path);
  }
  state_ = state_of(found);
  data_ = static_cast<const char*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), static_cast<std::size_t>(state_.bytes));
  close(fd_);
}

FileState MappedFile::state_now() const {
  struct stat found = {};
  if (fstat(fd_, &found) != 0) fail_to("looked at", path_);
  return state_of(found);
}

}  // namespace hetu
