#include "ps/coordinator/group_log.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu::ps {

void GroupLog::open(const std::string& path) {
  path_ = path;
  if (path.empty()) return;
  file_.open(path, std::ios::app);
  if (!file_)
    fail(Code::Io, "cannot write the group log {}; name a file in a folder that exists", path);
}

void GroupLog::begin_run(std::int64_t step) {
  const bool is_first = std::exchange(run_, step) < 0;
  if (!is_first || !file_.is_open()) return;
  if (step > 0) {
    go_on();
  } else {
    file_.close();
    file_.open(path_, std::ios::trunc);
  }
  for (const int pipeline : lost_before_) write_lost(pipeline, 0);
}

// Lines are in ascending order of "run", so everything from the first line of `run_` on belongs to
// the steps that the resumed training repeats.
void GroupLog::go_on() {
  if (!std::filesystem::is_regular_file(path_)) return;
  std::ifstream file(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::size_t kept = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', kept)) {
    const std::string line = text.substr(kept, end - kept);
    try {
      const auto record = nlohmann::json::parse(bounded_json(line, path_));
      if (record.at("run").get<std::int64_t>() >= run_) break;
      kept_us_ = std::max(kept_us_, record.at("time_us").get<std::int64_t>());
      if (!record.contains("lost"))
        serials_[record.at("stage").get<int>()] = record.at("serial").get<std::int64_t>() + 1;
    } catch (const nlohmann::json::exception&) {
      fail(Code::Io,
           "--group-log {}: '{}' is not a record of a group; "
           "give the file that the resumed run wrote, or a new file",
           path_, line.substr(0, 60));
    }
    kept = end + 1;
  }
  std::error_code error;
  if (kept < text.size()) std::filesystem::resize_file(path_, kept, error);
  if (error) fail(Code::Io, "cannot shorten the group log {}: {}", path_, error.message());
}

void GroupLog::write(const groups::Decision& decision, std::int64_t began_us) {
  if (!file_.is_open()) return;
  // Times continue after the newest kept line, as if the training had not paused.
  const std::int64_t offset_us = kept_us_ - began_us;
  std::vector<std::int64_t> arrived = decision.arrived_us;
  for (std::int64_t& time : arrived) time += offset_us;
  const auto kept = serials_.find(decision.stage);
  std::string line = fmt::format(
      R"({{"run":{},"time_us":{},"stage":{},"serial":{},"members":[{}],"updates":[{}],"arrived_us":[{}],"reason":"{}")",
      run_, decision.closed_us + offset_us, decision.stage,
      decision.serial + (kept == serials_.end() ? 0 : kept->second),
      fmt::join(decision.members, ","), fmt::join(decision.updates, ","), fmt::join(arrived, ","),
      groups::reason_name(decision.reason));
  if (!decision.weights.empty())
    line += fmt::format(R"(,"weights":[{:.6f}])", fmt::join(decision.weights, ","));
  if (decision.initiator >= 0) line += fmt::format(R"(,"initiator":{})", decision.initiator);
  file_ << line << "}\n";
}

void GroupLog::write_lost(int pipeline, std::int64_t time_us) {
  if (!file_.is_open()) return;
  if (run_ < 0) return lost_before_.push_back(pipeline);
  file_ << fmt::format(R"({{"run":{},"time_us":{},"lost":{}}})", run_, time_us + kept_us_, pipeline)
        << '\n';
}

void GroupLog::flush() {
  if (file_.is_open()) file_.flush();
}

}  // namespace hetu::ps
