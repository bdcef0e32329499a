#include "executor/job/job_tables.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hetu {

std::unique_ptr<ServerTables> open_tables(const JobPlan& job, TrainStages& stages,
                                          comm::Transport& transport,
                                          ps::ParameterClient* servers) {
  const std::vector<TableWindow> windows = stages.windows();
  if (windows.empty()) return nullptr;
  HETU_ASSERT(servers != nullptr);
  TablesOptions how;
  how.pipeline = job.pipeline;
  how.copies = job.copies();
  how.optimizer = job.optimizer;
  how.seed = job.options.seed;
  how.cache = job.options.cache;
  auto tables =
      std::make_unique<ServerTables>(job.graph, job.tables, windows, transport, *servers, how);
  // Gradients of a table's rows go to the servers within the UPDATE of the stage that reads them.
  stages.on_tables_update(
      [&tables = *tables](int stage, double rate) { tables.update(stage, rate); });
  return tables;
}

std::string counters_json(int worker,
                          const std::vector<std::pair<std::string, ps::CacheCounters>>& counters) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, c] : counters) {
    nlohmann::json table = {{"worker", worker}, {"table", name}};
    c.each([&](const char* what, std::int64_t count) { table[what] = count; });
    all.push_back(std::move(table));
  }
  return all.dump();
}

}  // namespace hetu
