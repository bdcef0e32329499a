#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "executor/comm/gather.h"
#include "executor/comm/tag_kinds.h"
#include "executor/job/executor.h"
#include "executor/job/make_plan.h"
#include "executor/job/saving.h"
#include "executor/state/checkpoint.h"
#include "executor/state/shared_folder.h"
#include "graph/base/checksum.h"
#include "graph/base/error.h"
#include "pipeline/ir/plan_file.h"
#include "python/src/bindings.h"
#include "python/src/settings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Step and run of the newest checkpoint, from which nothing else is read.
std::pair<std::int64_t, std::string> read_run(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  return {manifest.step, manifest.run_json};
}

void bind_training_options(nb::module_& m) {
  nb::class_<TrainerOptions>(m, "TrainingOptions",
                             "What a training job is told: fields of option_fields('training'), "
                             "its grid, its plan.")
      .def("__init__",
           [](TrainerOptions* self, const nb::dict& told) {
             new (self) TrainerOptions(trainer_options(told));
           })
      .def_ro("method", &TrainerOptions::method)
      .def_ro("micro_batches", &TrainerOptions::micro_batches)
      .def_ro("memory_limit", &TrainerOptions::limit_bytes)
      .def_rw("first_block", &TrainerOptions::first_block)
      .def_rw("block_times", &TrainerOptions::block_times)
      .def_prop_ro("model_stages", &model_stages_of);
}

void bind_questions(nb::module_& m) {
  m.def(
      "rate_at",
      [](const nb::dict& rate, std::int64_t update) {
        const LearningRate r = rate_of(rate);
        check_rate(r);
        return r.at(update);
      },
      "Learning rate of an update, counted from 1.");
  m.def(
      "crc32c", [](const nb::bytes& data) { return crc32c(data.c_str(), data.size()); },
      "CRC-32C of bytes.");
  m.def(
      "check_training",
      [](const Graph& graph, const nb::dict& optimizer, TrainerOptions options, bool limited) {
        if (!limited) options.limit_bytes = 0;
        return Trainer::check(graph, optimizer_of(optimizer), with_servers(graph, options));
      },
      nb::arg("graph"), nb::arg("optimizer"), nb::arg("options"), nb::arg("limited") = true,
      "Throws what some worker of such a job would throw before its first step; returns the "
      "largest peak of a worker's memory, bytes.");
  m.def(
      "check_training_options",
      [](const nb::dict& told) { check_training_options(trainer_options(told)); },
      "Throws what is wrong with options of a job whatever its model is.");
  m.def("default_micro_batches", &default_micro_batches,
        "Micro-batches per step that training has unless told, of a method or of rows.");
  m.def("balance_stages", &balance_stages,
        "First block of each of so many stages, cut by the floating-point operations of blocks.");
  m.def("list_checkpoints", &list_checkpoints);
  m.def("check_shared_folder", &check_shared_folder, nb::call_guard<nb::gil_scoped_release>(),
        "Throws on all workers if one of them does not see the folder that worker 0 sees.");
  m.def("read_run", &read_run, "(step, run as JSON) of the newest checkpoint of a folder.");
  m.def(
      "gather_texts",
      [](comm::Transport& links, const std::string& mine) {
        return gather_texts(mine, links,
                            {comm::make_tag(kSaveTag, 0, 0, 7, 0), "a text of every worker"});
      },
      nb::call_guard<nb::gil_scoped_release>(), "The texts of all workers, in every worker.");
}

}  // namespace

void bind_training(nb::module_& m) {
  bind_training_options(m);
  bind_questions(m);
}

}  // namespace hetu
