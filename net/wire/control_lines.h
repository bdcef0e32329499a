// Control lines that heturun sends on a pipe to the coordinator and the parameter servers.
#pragma once
#include <functional>
#include <string>

namespace hetu::ps {

/// Splits input into lines, and passes each line to `obey` without its newline.
class ControlLines {
 public:
  explicit ControlLines(std::function<void(const std::string& line)> obey);
  /// Reads the available input. Returns false once the pipe has ended, or if a line is longer than
  /// 4096 bytes.
  bool read(int fd);

 private:
  const std::function<void(const std::string&)> obey_;
  std::string begun_;  // the beginning of an incomplete line
};

}  // namespace hetu::ps
