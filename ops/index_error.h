// The error of a kernel that found an index out of range. Thrown by kernels; executor/stage adds
// the step and the row.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"

namespace hetu {

/// An index out of range, with its place in the kernel's input.
class IndexError final : public Error {
 public:
  /// `what` says what the number is: "index" or "label".
  IndexError(const std::string& node, const char* what, std::int64_t value, std::int64_t position,
             std::int64_t below)
      : Error(Code::InvalidArgument, fmt::format("'{}': {} {} at position {} is outside [0, {})",
                                                 node, what, value, position, below)),
        what_(what),
        value_(value),
        position_(position),
        below_(below) {}

  const char* kind() const { return what_; }
  std::int64_t value() const { return value_; }
  std::int64_t position() const { return position_; }  ///< among all indices of the input
  std::int64_t below() const { return below_; }

 private:
  const char* what_;
  std::int64_t value_, position_, below_;
};

}  // namespace hetu
