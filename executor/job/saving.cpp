#include "executor/job/saving.h"

#include "config/env.h"
#include "executor/predict/saved_model.h"

namespace hetu {

void save_model(Trainer& trainer, comm::Transport& transport, const Graph& graph,
                const std::string& folder, const std::vector<std::string>& fetches) {
  const Graph model = model_of(graph, fetches);
  const TrainerOptions& o = trainer.options();
  in_one_pipeline(trainer, [&](const std::string& saver) {
    save_model({.folder = folder, .saver = saver, .job = env().job}, trainer.step(), model,
               o.batch_size / o.micro_batches, trainer.save_parts(), transport);
  });
}

}  // namespace hetu
