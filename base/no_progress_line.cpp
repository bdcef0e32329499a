// Progress lines of a build without threads, the one for browsers: they show nothing.
#include "base/progress_line.h"

namespace hetu {

struct ProgressLine::Display {};

ProgressLine::ProgressLine(std::string /*command*/, std::string /*unit*/, bool /*quiet*/) {}

void ProgressLine::operator()(std::int64_t /*done*/, std::int64_t /*all*/) const {}

void ProgressLine::close() const {}

}  // namespace hetu
