// Times and memory of plans: generation, verification, simulation. Limits are in the label. The
// column CPU counts on a machine with other load. peak MB is the largest resident size of the
// process during one benchmark.
#include <benchmark/benchmark.h>

#include <fstream>
#include <string>

#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

// Linux: writing 5 resets the largest resident size to the current one.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  return 0;
}

std::int64_t instructions(const Schedule& s) {
  std::int64_t count = 0;
  for (const Program& p : s.workers)
    count +=
        static_cast<std::int64_t>(p.prologue.size() + p.drain.size() + p.body.size() * p.repeat);
  return count;
}

template <class Work>
void measure(benchmark::State& state, const Schedule& plan, Work&& work) {
  forget_peak();
  for (auto _ : state) work();
  state.counters["peak MB"] = peak_mb();
  state.counters["instructions"] = static_cast<double>(instructions(plan));
}

struct Size {
  const char* method;
  Sizes sizes;
};

// Returns the sizes of a plan, with two stages per worker where the method allows a choice.
Size size_of(const Method& m, int stages, int micro_batches) {
  return {m.name, resolved(m, {.stages = stages, .micro_batches = micro_batches})};
}

Schedule plan_of(const Size& s) { return generate(s.method, s.sizes); }

void generate_and_verify(benchmark::State& state, const Size& size) {
  measure(state, plan_of(size), [&] { benchmark::DoNotOptimize(verify(plan_of(size))); });
}

void verify_lowered(benchmark::State& state, const Size& size) {
  const Schedule plan = lower(plan_of(size));
  measure(state, plan, [&] { benchmark::DoNotOptimize(verify(plan)); });
}

void predict(benchmark::State& state, const Schedule& plan) {
  measure(state, plan, [&] { benchmark::DoNotOptimize(simulate(plan, Costs{})); });
}

// Adds a benchmark. A slow one runs one pass only. The limit goes into the label.
template <class Run>
void add(const std::string& name, const char* limit, bool once, Run&& run) {
  auto* b = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    run(state);
    state.SetLabel(limit);
  });
  b->Unit(benchmark::kMillisecond);
  if (once) b->Iterations(1);
}

std::string text(const Size& s) {
  return std::string(s.method) + "/" + std::to_string(s.sizes.stages) + "x" +
         std::to_string(s.sizes.micro_batches);
}

void add_all() {
  const Method& plain = *find_method("1f1b");
  const Size middle = size_of(plain, 64, 512), large = size_of(plain, 1024, 4096);
  add("generate+verify/" + text(middle), "limit 1 s", false,
      [=](auto& state) { generate_and_verify(state, middle); });
  add("simulate/" + text(middle), "limit 0.2 s", false,
      [=](auto& state) { predict(state, plan_of(middle)); });
  add("simulate/" + text(large), "limit 10 s, 4 GB", true,
      [=](auto& state) { predict(state, plan_of(large)); });
  add("generate+verify/" + text(large), "", true,
      [=](auto& state) { generate_and_verify(state, large); });
  add("verify lowered/" + text(large), "", true,
      [=](auto& state) { verify_lowered(state, large); });
  add("simulate lowered/" + text(large), "", true,
      [=](auto& state) { predict(state, lower(plan_of(large))); });
  for (const Method& m : methods()) {
    const Size size = size_of(m, 32, 256);
    if (!is_legal(m, size.sizes)) continue;
    const char* limit = std::string(m.name) == "zb-2p" ? "limit 20 s" : "";
    add("generate+verify/" + text(size), limit, true,
        [=](auto& state) { generate_and_verify(state, size); });
    add("simulate/" + text(size), "", true, [=](auto& state) { predict(state, plan_of(size)); });
  }
}

}  // namespace
}  // namespace hetu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  hetu::add_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
