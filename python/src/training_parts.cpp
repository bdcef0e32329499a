// The parts of the Python module that need training; no_training.cpp is for a build without it.
#include "base/error.h"
#include "executor/device/fork_gate.h"
#include "executor/job/job_options.h"
#include "executor/stage/optimizer.h"
#include "python/src/bindings.h"
#include "python/src/option_tables.h"

namespace hetu {
namespace {

void with_injection(const UseTable& use) {
  Stragglers o;
  use(injection_fields(o), [] {});
}

}  // namespace

std::vector<OptionTable> training_tables() {
  std::vector<OptionTable> all = {{"training", with<JobOptions>},
                                  {"averaging", with<Averaging>},
                                  {"stragglers", with_injection},
                                  {"slow", with<Slowdown>},
                                  {"rate", with<LearningRate>}};
  OptimizerConfig any;
  const Fields of_any = fields(any);
  for (const char* kind : find_field(of_any, "kind").choices) {
    all.push_back({kind, [kind](const UseTable& use) {
                     OptimizerConfig c = defaults_of(parse_optimizer(kind));
                     use(fields(c), [] {});
                   }});
  }
  return all;
}

void refuse_table(const std::string& name) {
  fail(Code::InvalidArgument, "there is no table of options '{}'", name);
}

void bind_training_parts(nanobind::module_& m) {
  watch_forks();
  bind_config(m);
  bind_services(m);
  bind_graph(m);
  bind_data(m);
  bind_text(m);
  bind_evaluate(m);
  bind_links(m);
  bind_ps(m);
  bind_summary(m);
  bind_weights(m);
  bind_training(m);
  bind_executor(m);
  bind_module(m);
  bind_predict(m);
  bind_weight_files(m);
  bind_checkpoint(m);
}

}  // namespace hetu
