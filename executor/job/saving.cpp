#include "executor/job/saving.h"

#include "config/env.h"
#include "executor/predict/saved_model.h"

namespace hetu {

void save_model(Job& job, const std::string& folder, const std::vector<std::string>& fetches,
                const std::vector<std::string>& outputs) {
  const auto whole = job.lock();
  const Graph model = model_of(job.given_graph(), fetches, outputs);
  const JobOptions& o = job.plan().options;
  in_one_pipeline(job, [&](const std::string& saver) {
    save_model({.folder = folder, .saver = saver, .job = env().job}, job.step(), model,
               o.batch_size / o.micro_batches, job.save_parts(), job.transport());
  });
}

}  // namespace hetu
