#include "pipeline/fill/timeline_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/fill/pickle.h"

namespace hetu {
namespace {

using nlohmann::json;

constexpr const char* kIterations = "start_end";

json value_of(const std::string& path) {
  std::string text = read_text(path);
  if (is_pickle(text)) text = json_of_pickle(text, path);
  json value = json::parse(bounded_json(text, path), nullptr, false);
  if (value.is_discarded())
    fail(Code::Io, "{}: neither JSON nor a pickle of protocol 2 or newer", path);
  return value;
}

Interval interval_of(const json& pair, const std::string& path, const std::string& label) {
  const auto is_time = [](const json& t) { return t.is_number_integer(); };
  if (!pair.is_array() || pair.size() != 2 || !is_time(pair[0]) || !is_time(pair[1])) {
    fail(Code::Io, "{}: '{}': expected [start, end] in whole ns, got {}", path, label,
         one_line(pair.dump()));
  }
  return {pair[0].get<std::int64_t>(), pair[1].get<std::int64_t>()};
}

// Both null and [null, ...] mean that nothing was recorded.
bool is_nothing(const json& pair) {
  return pair.is_null() || (pair.is_array() && pair.size() == 2 && pair[0].is_null());
}

}  // namespace

NodeTimeline read_timeline(const std::string& path) {
  const json value = value_of(path);
  if (!value.is_object() || !value.contains(kIterations) || !value[kIterations].is_array() ||
      value[kIterations].empty()) {
    fail(Code::Io, "{}: expected a dictionary of lists, with one entry of '{}' per iteration", path,
         kIterations);
  }
  const std::size_t iterations = value[kIterations].size();
  NodeTimeline node{path, {}};
  for (const auto& [label, list] : value.items()) {
    if (label == kIterations) continue;
    if (!list.is_array() || list.size() % iterations != 0) {
      fail(Code::Io, "{}: '{}' must be a list with equally many entries in each of {} iterations",
           path, label, iterations);
    }
    NodeTimeline::Recorded recorded{label, {}};
    // Every iteration has the same number of entries, so the last iteration is the last equal
    // share.
    for (std::size_t i = list.size() - list.size() / iterations; i < list.size(); ++i)
      if (!is_nothing(list[i])) recorded.intervals.push_back(interval_of(list[i], path, label));
    node.labels.push_back(std::move(recorded));
  }
  return node;
}

void write_orders(const std::string& path, const std::vector<FilledNode>& nodes) {
  std::vector<std::vector<std::vector<std::string>>> out;
  for (const FilledNode& node : nodes) out.push_back(node.orders());
  const auto ends = [&path](const std::string& with) {
    return path.size() >= with.size() &&
           path.compare(path.size() - with.size(), with.size(), with) == 0;
  };
  const bool pickled = ends(".pickle") || ends(".pkl");
  write_text(path, pickled ? pickle_of(out) : json(out).dump(1) + "\n");
}

}  // namespace hetu
