// What heturun tells the processes that it has started beside the workers: lines on a pipe.
#pragma once
#include <functional>
#include <string>

namespace hetu::ps {

/// Cuts what comes into lines and hands each to `obey`, without its end.
class ControlLines {
 public:
  explicit ControlLines(std::function<void(const std::string& line)> obey);
  /// Reads what is there; false once the pipe has ended or a line is longer than 4096 bytes.
  bool read(int fd);

 private:
  const std::function<void(const std::string&)> obey_;
  std::string begun_;
};

}  // namespace hetu::ps
