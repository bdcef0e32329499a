#include "pipeline/planner/space.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"

namespace hetu {
namespace {

bool wanted(const std::vector<int>& list, int value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

class Space {
 public:
  Space(const PlanRequest& request, const BlocksOfSize& blocks) : r_(request), blocks_(blocks) {}

  std::vector<PlanConfiguration> all() {
    check_methods();
    require(!r_.micro_batch_sizes.empty(), "no micro-batch size to try");
    const int workers = r_.machines.workers();
    bool divides = false;
    for (int stages = 1; stages <= workers; ++stages) {
      if (!wanted(r_.stages, stages)) continue;
      for (int pipelines = 1; pipelines * stages <= workers; ++pipelines) {
        if (!wanted(r_.pipelines, pipelines)) continue;
        for (const int size : r_.micro_batch_sizes) {
          const std::int64_t samples = std::int64_t{pipelines} * size;
          if (r_.global_batch % samples != 0) continue;
          divides = true;
          add_methods(stages, pipelines, size, static_cast<int>(r_.global_batch / samples));
        }
      }
    }
    require(divides, "{}", no_division());
    return std::move(found_);
  }

 private:
  void check_methods() const {
    for (const std::string& name : r_.methods) {
      if (find_method(name) == nullptr) generate(name, {});  // throws, with the known names
      require(!takes(*find_method(name), "steps"),
              "--methods {}: the planner plans methods with a flush after each step; this one has "
              "none",
              name);
    }
  }

  bool wants(const Method& m) const {
    if (r_.methods.empty()) return !m.by_costs && !takes(m, "steps");
    return std::any_of(r_.methods.begin(), r_.methods.end(),
                       [&](const std::string& name) { return find_method(name) == &m; });
  }

  std::string no_division() const {
    std::string sizes;
    for (const int s : r_.micro_batch_sizes)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(s);
    const int least = *std::min_element(r_.micro_batch_sizes.begin(), r_.micro_batch_sizes.end());
    const int pipelines =
        r_.pipelines.empty() ? 1 : *std::min_element(r_.pipelines.begin(), r_.pipelines.end());
    const int unit = least * pipelines;
    const int below = r_.global_batch / unit * unit;
    return fmt::format(
        "a global batch of {} samples can't be divided into equal micro-batches of {} samples{}; "
        "the nearest batch that can is {}",
        r_.global_batch, sizes, pipelines > 1 ? fmt::format(" for {} pipelines", pipelines) : "",
        below > 0 ? below : unit);
  }

  // On one worker, chunks only divide its stage.
  std::vector<int> chunks_of(const Method& m, int stages) const {
    if (!takes(m, "chunks")) return {m.chunks};
    if (!r_.chunks.empty()) return r_.chunks;
    if (stages == 1) return {m.chunks};
    return {kChunksToTry.begin(), kChunksToTry.end()};
  }

  void add_methods(int stages, int pipelines, int size, int micro_batches) {
    for (const Method& m : methods()) {
      if (!wants(m)) continue;
      std::vector<Sizes> variants;
      Sizes base;
      base.stages = stages;
      base.chunks = m.chunks;
      base.micro_batches = micro_batches;
      for (const int chunks : chunks_of(m, stages)) {
        variants.push_back(base);
        variants.back().chunks = chunks;
      }
      if (takes(m, "concat")) {
        for (const char* concat : {"doubling", "halving"}) {
          if (std::string(concat) == "halving" && !r_.halving) continue;
          // Without a second round of micro-batches, doubling is the same as direct.
          if (std::string(concat) == "doubling" && micro_batches <= stages) continue;
          variants.push_back(base);
          variants.back().concat = concat;
        }
      }
      for (int pairs = 2; takes(m, "pairs") && pairs <= stages / 2; ++pairs) {
        if (stages / 2 % pairs != 0) continue;
        variants.push_back(base);
        variants.back().pairs = pairs;
      }
      for (const Sizes& v : variants)
        for (const bool recompute : {false, true})
          if (!recompute || r_.recompute) add(m, v, recompute, pipelines, size);
    }
  }

  void add(const Method& m, Sizes sizes, bool recompute, int pipelines, int size) {
    sizes.with_recompute = recompute;
    if (!is_legal(m, sizes)) return;
    if (sizes.concat == "halving" && size < 2) return;  // a sample has no halves
    const int stages = sizes.stages * sizes.chunks;
    if (stages > blocks_(size)) return;
    if (recompute && stages == 1) return;  // the last stage recomputes nothing
    found_.push_back({m.name, sizes, pipelines, size});
  }

  const PlanRequest& r_;
  const BlocksOfSize& blocks_;
  std::vector<PlanConfiguration> found_;
};

}  // namespace

std::string to_text(const PlanConfiguration& c) {
  const Sizes& s = c.sizes;
  std::string text = c.method;
  if (s.chunks > 1) text += fmt::format(" with {} chunks", s.chunks);
  if (s.pairs > 1) text += fmt::format(" with {} pairs", s.pairs);
  if (s.concat != "direct") text += " with " + s.concat;
  return fmt::format("{}, {} x {}, {} of {}{}", text, quantity(c.pipelines, "pipeline"),
                     quantity(s.stages, "stage"), quantity(s.micro_batches, "micro-batch"),
                     quantity(c.micro_batch_size, "sample"), s.with_recompute ? ", recompute" : "");
}

std::vector<PlanConfiguration> planner_space(const PlanRequest& request,
                                             const BlocksOfSize& blocks) {
  return Space(request, blocks).all();
}

}  // namespace hetu
