#include "ps/server/memory_budget.h"

#include <fmt/format.h>

namespace hetu::ps::server {

std::string MemoryBudget::refusal(int worker, std::int64_t more, const std::string& table) const {
  if (has(more)) return "";
  return fmt::format(
      "parameter server {} holds {} bytes, may hold {}, and worker {} wants {} more for table "
      "\"{}\"; start more servers, or allow more",
      server_, taken(), most_, worker, more, table);
}

}  // namespace hetu::ps::server
