#include "ps/group_log.h"

#include "graph/base/error.h"

namespace hetu::ps {

void GroupLog::open(const std::string& path) {
  if (path.empty()) return;
  file_.open(path, std::ios::trunc);
  if (!file_)
    fail(Code::Io, "cannot write the group log {}; name a file in a folder that exists", path);
}

std::string group_line(const groups::Decision& decision, std::int64_t began_us) {
  std::vector<std::int64_t> arrived = decision.arrived_us;
  for (std::int64_t& time : arrived) time -= began_us;
  std::string line = fmt::format(
      R"({{"time_us":{},"stage":{},"serial":{},"members":[{}],"updates":[{}],"arrived_us":[{}],"reason":"{}")",
      decision.closed_us - began_us, decision.stage, decision.serial,
      fmt::join(decision.members, ","), fmt::join(decision.updates, ","), fmt::join(arrived, ","),
      groups::reason_name(decision.reason));
  if (!decision.weights.empty())
    line += fmt::format(R"(,"weights":[{:.6f}])", fmt::join(decision.weights, ","));
  if (decision.initiator >= 0) line += fmt::format(R"(,"initiator":{})", decision.initiator);
  return line + "}";
}

void GroupLog::write(const groups::Decision& decision, std::int64_t began_us) {
  if (file_.is_open()) file_ << group_line(decision, began_us) << '\n';
}

void GroupLog::write_lost(int pipeline, std::int64_t time_us) {
  if (file_.is_open())
    file_ << fmt::format(R"({{"time_us":{},"lost":{}}})", time_us, pipeline) << '\n';
}

void GroupLog::flush() {
  if (file_.is_open()) file_.flush();
}

}  // namespace hetu::ps
