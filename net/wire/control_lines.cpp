#include "net/wire/control_lines.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hetu::ps {

namespace {
constexpr std::size_t kLongestLine = 4096;
}  // namespace

ControlLines::ControlLines(std::function<void(const std::string& line)> obey)
    : obey_(std::move(obey)) {}

bool ControlLines::read(int fd) {
  char buffer[4096];
  const ssize_t count = ::read(fd, buffer, sizeof buffer);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count <= 0) return false;
  begun_.append(buffer, static_cast<std::size_t>(count));
  for (std::size_t end; (end = begun_.find('\n')) != std::string::npos;) {
    obey_(begun_.substr(0, end));
    begun_.erase(0, end + 1);
  }
  return begun_.size() <= kLongestLine;
}

}  // namespace hetu::ps
