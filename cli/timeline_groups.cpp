#include "cli/timeline_groups.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu::cli {
namespace {

groups::Reason reason_of(const std::string& name) {
  for (int r = 0; r <= static_cast<int>(groups::Reason::Drawn); ++r)
    if (name == groups::reason_name(static_cast<groups::Reason>(r)))
      return static_cast<groups::Reason>(r);
  fail(Code::Io, "unknown reason '{}'", name.substr(0, 40));
}

groups::Decision decision_of(const nlohmann::json& line) {
  groups::Decision d;
  d.closed_us = line.at("time_us").get<std::int64_t>();
  d.stage = line.at("stage").get<int>();
  d.serial = line.at("serial").get<std::int64_t>();
  d.members = line.at("members").get<std::vector<int>>();
  d.updates = line.at("updates").get<std::vector<std::int64_t>>();
  d.arrived_us = line.at("arrived_us").get<std::vector<std::int64_t>>();
  d.reason = reason_of(line.at("reason").get<std::string>());
  d.initiator = line.value("initiator", -1);
  constexpr int kMost = 1 << 20;
  const bool whole = !d.members.empty() && d.members.size() == d.updates.size() &&
                     d.members.size() == d.arrived_us.size() && d.stage >= 0 && d.stage < kMost &&
                     d.members.front() >= 0 && d.members.back() < kMost &&
                     std::is_sorted(d.members.begin(), d.members.end());
  if (!whole) fail(Code::Io, "stage, members, updates and arrived_us are inconsistent");
  return d;
}

}  // namespace

std::vector<groups::Decision> read_group_log(const std::string& path) {
  std::istringstream lines(read_text(path));
  std::vector<groups::Decision> log;
  std::string text;
  for (int number = 1; std::getline(lines, text); ++number) {
    if (text.empty()) continue;
    try {
      const auto line = nlohmann::json::parse(bounded_json(text, path));
      if (!line.contains("lost")) log.push_back(decision_of(line));
    } catch (const std::exception& e) {
      fail(Code::Io, "{}:{}: not a line of a group log: {}", path, number,
           std::string(e.what()).substr(0, 120));
    }
  }
  if (log.empty())
    fail(Code::Io, "{}: contains no group; a group log has one JSON object per line", path);
  return log;
}

}  // namespace hetu::cli
