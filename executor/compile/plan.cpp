// Look-up of boundaries, and the texts of memory plans.
#include "executor/compile/plan.h"

#include <fmt/format.h>

namespace hetu {

const Boundary* StagePlan::boundary(bool incoming, bool backwards, int part) const {
  for (const Boundary& b : boundaries) {
    if (b.incoming == incoming && b.backward == backwards && b.part == part) return &b;
  }
  return nullptr;
}

std::string to_string(const MemoryPlan& m) {
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "weights {:.1f} MiB{}{}{}{}, optimizer {:.1f}, gradients {:.1f}{}, activations {:.1f} x {}, "
      "kept from I to W {:.1f} x {}{}, messages {:.1f}, batch {:.1f}, scratch {:.1f}{}; peak "
      "{:.1f} MiB{}",
      mib(m.weights), m.weight_copies > 1 ? fmt::format(" x {} versions", m.weight_copies) : "",
      m.rounded > 0 ? fmt::format(", rounded {:.1f}", mib(m.rounded)) : "",
      m.packed > 0 ? fmt::format(", packed {:.1f}", mib(m.packed)) : "",
      m.buffers > 0 ? fmt::format(", buffers {:.1f}", mib(m.buffers)) : "", mib(m.optimizer),
      mib(m.gradients), m.averages > 0 ? fmt::format(", averages {:.1f}", mib(m.averages)) : "",
      mib(m.saved), m.saved_copies, mib(m.held), m.held_copies,
      m.taps > 0 ? fmt::format(", K-FAC {:.1f} x {}", mib(m.taps), m.tap_copies) : "",
      mib(m.boundaries), mib(m.feeds), mib(m.scratch),
      m.factor_scratch > 0 ? fmt::format(" (K-FAC {:.1f})", mib(m.factor_scratch)) : "",
      mib(m.peak()),
      m.ahead > 0 ? fmt::format(", plus {:.1f} MiB for fields of the next step", mib(m.ahead))
                  : "");
}

std::int64_t WorkerMemory::peak() const {
  std::int64_t bytes = 0;
  for (const auto& [stage, memory] : stages) bytes += memory.peak();
  return bytes;
}

std::int64_t WorkerMemory::ahead() const {
  std::int64_t bytes = 0;
  for (const auto& [stage, memory] : stages) bytes += memory.ahead;
  return bytes;
}

std::string to_string(const WorkerMemory& memory) {
  if (memory.stages.size() == 1) return to_string(memory.stages[0].second);
  std::string text;
  for (const auto& [stage, plan] : memory.stages)
    text += fmt::format("stage {}: {}; ", stage, to_string(plan));
  return text + fmt::format("total {:.1f} MiB", static_cast<double>(memory.peak()) / (1 << 20));
}

}  // namespace hetu
