#include "pipeline/ir/event_instr.h"

namespace hetu {

std::optional<Instr> instr_of(const TraceEvent& event) {
  for (int k = 0; k < kKindCount; ++k) {
    const Kind kind = static_cast<Kind>(k);
    if (event.kind == kind_name(kind))
      return Instr{kind, false, static_cast<std::int16_t>(event.part), event.stage, event.micro};
  }
  return std::nullopt;
}

}  // namespace hetu
