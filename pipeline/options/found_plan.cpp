#include "pipeline/options/found_plan.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

using nlohmann::json;

// Returns the answer of `hetu plan`, or null for any other file.
json answer_in(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  const std::string text = read_text(path);
  if (text.find("\"configurations\"") == std::string::npos) return nullptr;
  try {
    json in = json::parse(bounded_json(text, path));
    if (in.is_object() && in.contains("plan") && in.contains("global_batch")) return in;
  } catch (const json::exception&) {
    // the reader of plans describes the fault
  }
  return nullptr;
}

// Returns the number of blocks of each stage.
Partition partition_of(const json& plan) {
  const auto first = plan.at("first_block").get<std::vector<int>>();
  Partition partition{Partition::By::Blocks, {{}}};
  for (std::size_t s = 0; s < first.size(); ++s)
    partition.blocks.back().push_back(
        (s + 1 < first.size() ? first[s + 1] : plan.at("blocks").get<int>()) - first[s]);
  return partition;
}

void take(PlanOptions& o, const json& plan) {
  o.source = plan.at("method").get<std::string>();
  const auto set = [&o](const char* name) { o.given.insert(name); };
  o.sizes.stages = plan.at("stages").get<int>(), set("stages");
  o.sizes.micro_batches = plan.at("micro_batches").get<int>(), set("micro_batches");
  o.pipelines = plan.at("pipelines").get<int>(), set("pipelines");
  if (plan.contains("chunks")) o.sizes.chunks = plan["chunks"].get<int>(), set("chunks");
  if (plan.contains("pairs")) o.sizes.pairs = plan["pairs"].get<int>(), set("pairs");
  if (plan.contains("concat")) o.sizes.concat = plan["concat"].get<std::string>(), set("concat");
  if (plan.at("recompute").get<bool>()) o.sizes.with_recompute = true, set("with_recompute");
}

}  // namespace

void take_found_plan(PlanOptions& o) {
  const json answer = answer_in(o.source);
  if (answer.is_null()) return;
  const std::string path = o.source;
  const json& plan = answer["plan"];
  if (!plan.is_object())
    fail(Code::Config, "{}: `hetu plan` has found no plan; see its reasons with --format text",
         path);
  PlanOptions unused;
  for (const OptionField& f :
       only(fields(unused), {"stages", "micro_batches", "pipelines", "chunks", "pairs", "concat",
                             "with_recompute", "partition"}))
    require(!o.has(f.name.c_str()),
            "{}: {} has the sizes and the cut of the plan; leave the option out", flag_of(f), path);
  const bool times = o.has("forward") || o.has("backward") || o.has("input_grad") ||
                     o.has("weight_grad") || o.has("recompute");
  try {
    take(o, plan);
    if (!o.costs.costs.empty()) {
      o.partition = partition_of(plan);
      o.given.insert("partition");
      if (o.costs.table.micro_batch_size == 0 && has_profile(o.costs))
        o.costs.table.micro_batch_size = plan.at("micro_batch_size").get<int>();
      if (o.speed.empty() && plan.contains("costs")) o.speed = read_costs(path).speed;
    } else if (!times) {
      o.costs.costs = path;
    }
  } catch (const json::exception& e) {
    fail(Code::Config, "{}: the plan can't be read: {}; make it with this version's `hetu plan`",
         path, one_line(e.what()));
  }
}

}  // namespace hetu
