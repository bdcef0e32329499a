#include "ps/server/memory_budget.h"

#include <fmt/format.h>

#include "base/words.h"

namespace hetu::ps::server {

std::string MemoryBudget::refusal(int worker, std::int64_t more, const std::string& table) const {
  if (has(more)) return "";
  return fmt::format(
      "parameter server {} holds {} of at most {}, "
      "and worker {} needs {} more for table \"{}\"; start more servers, or allow more memory",
      server_, memory_text(taken()), memory_text(most_), worker, memory_text(more), table);
}

}  // namespace hetu::ps::server
