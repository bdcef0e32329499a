#include "pipeline/options/cost_samples.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

// Returns the number in a cost file, which the reader of costs has checked, or 0.
int samples_in(const nlohmann::json& costs) {
  constexpr const char* kKey = "samples_per_micro_batch";
  if (!costs.is_object() || !costs.contains(kKey) || !costs[kKey].is_number_integer()) return 0;
  return costs[kKey].get<int>();
}

}  // namespace

int samples_in_file(const std::string& path) {
  const std::string text = read_text(path);
  const auto in =
      nlohmann::json::parse(bounded_json(text, path), nullptr, /*allow_exceptions=*/false);
  if (in.is_object() && in.contains("metadata") && in["metadata"].contains("costs"))
    return samples_in(in["metadata"]["costs"]);
  return samples_in(in);
}

int stated_samples(const CostOptions& options) {
  const int given = options.table.micro_batch_size;
  const int stated = options.costs.empty() ? 0 : samples_in_file(options.costs);
  require(given == 0 || stated == 0 || given == stated,
          "--micro-batch-size {}: {} has the costs of micro-batches of {}; leave the option out",
          given, options.costs, stated);
  return given > 0 ? given : stated;
}

int known_samples(const CostOptions& options) {
  const int samples = stated_samples(options);
  require(
      samples > 0 || options.costs.empty() ||
          read_text(options.costs).find("\"traceEvents\"") == std::string::npos,
      "--costs {}: the trace doesn't say how many samples a micro-batch has, and times of other "
      "sizes follow from it; give --micro-batch-size B",
      options.costs);
  return samples;
}

int samples_or_one(const CostOptions& options) { return std::max(1, known_samples(options)); }

}  // namespace hetu
