// Reports of a plan of PipeDream's planner as text and JSON. Part of pipedream_graph.h.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/choose/pipedream_graph.h"

namespace hetu {
namespace {

std::string shortened(const std::string& text) {
  return text.size() <= 48 ? text : text.substr(0, 47) + "…";
}

}  // namespace

std::string copies_text(const PipeDreamPlan& plan) {
  std::string text;
  for (const PipeDreamStage& s : plan.stages)
    text += fmt::format("{}{}", text.empty() ? "" : "-", s.copies);
  return text;
}

std::string to_text(const PipeDreamPlan& plan, const PipeDreamModel& model) {
  std::string text = fmt::format("{} stages, {}\n", plan.stages.size(), copies_text(plan));
  text += fmt::format("{:>5} {:>6} {:>6} {:>11} {:>12} {:>10}  {}\n", "stage", "copies", "layers",
                      "compute ms", "weights MiB", "input MiB", "first layer");
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PipeDreamStage& stage = plan.stages[s];
    const std::vector<std::string> layers = layers_of(model, stage);
    text += fmt::format("{:>5} {:>6} {:>6} {:>11.3f} {:>12.2f} {:>10.2f}  {}\n", s, stage.copies,
                        layers.size(), stage.compute_s * 1e3, stage.weight_bytes / (1 << 20),
                        stage.input_bytes / (1 << 20), shortened(layers.front()));
  }
  text += fmt::format("{:.3f} ms per micro-batch; one machine {:.3f}, data parallel {:.3f}\n",
                      plan.time_s * 1e3, plan.single_s * 1e3, plan.data_parallel_s * 1e3);
  return text;
}

std::string to_json(const PipeDreamPlan& plan, const PipeDreamModel& model) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const PipeDreamStage& s : plan.stages)
    stages.push_back({{"copies", s.copies},
                      {"compute_s", s.compute_s},
                      {"weight_bytes", s.weight_bytes},
                      {"input_bytes", s.input_bytes},
                      {"layers", layers_of(model, s)}});
  const nlohmann::ordered_json out = {{"copies", copies_text(plan)},
                                      {"time_s", plan.time_s},
                                      {"single_s", plan.single_s},
                                      {"data_parallel_s", plan.data_parallel_s},
                                      {"stages", stages}};
  return out.dump();
}

std::string plan_pipedream_file(const std::string& path, const PipeDreamOptions& options,
                                bool json) {
  const PipeDreamModel model = cut_pipedream_graph(parse_pipedream_graph(read_text(path), path));
  const PipeDreamPlan plan = plan_pipedream(model.cuts, options);
  return json ? to_json(plan, model) + "\n" : to_text(plan, model);
}

}  // namespace hetu
