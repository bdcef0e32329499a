#include "ps/server/memory_budget.h"

#include <fmt/format.h>

namespace hetu::ps::server {

std::string MemoryBudget::refusal(int worker, std::int64_t more, const std::string& table) const {
  if (has(more)) return "";
  return fmt::format(
      "parameter server {} holds {} of at most {} bytes, "
      "and worker {} needs {} more for table \"{}\"; start more servers, or allow more memory",
      server_, taken(), most_, worker, more, table);
}

}  // namespace hetu::ps::server
