// Options and checks of a training before a job exists, for Python.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/checksum.h"
#include "base/error.h"
#include "config/env.h"
#include "executor/job/job_check.h"
#include "executor/job/make_plan.h"
#include "executor/job/saving.h"
#include "executor/state/checkpoint.h"
#include "executor/state/shared_folder.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/ir/plan_file.h"
#include "python/src/bindings.h"
#include "python/src/settings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Returns the step and the run of the newest checkpoint, without reading its tensors.
std::pair<std::int64_t, std::string> read_run(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  return {manifest.step, manifest.run_json};
}

void bind_training_options(nb::module_& m) {
  nb::class_<JobOptions>(m, "TrainingOptions",
                         "The options of a training job: the fields of "
                         "option_fields('training'), the grid and the plan.")
      .def("__init__", [](JobOptions* self,
                          const nb::dict& values) { new (self) JobOptions(job_options(values)); })
      .def_ro("method", &JobOptions::method)
      .def_ro("micro_batches", &JobOptions::micro_batches)
      .def_ro("shares", &JobOptions::shares)
      .def_ro("memory_limit", &JobOptions::limit_bytes)
      .def_rw("first_block", &JobOptions::first_block)
      .def_rw("block_times", &JobOptions::block_times)
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
      "Returns the learning rate of an update, counted from 1.");
  m.def(
      "crc32c", [](const nb::bytes& data) { return crc32c(data.c_str(), data.size()); },
      "Returns the CRC-32C of bytes.");
  m.def(
      "check_training",
      [](const Graph& graph, const nb::dict& optimizer, JobOptions options, bool limited) {
        if (!limited) options.limit_bytes = 0;
        return check_job(graph, optimizer_of(optimizer), with_servers(graph, options));
      },
      nb::arg("graph"), nb::arg("optimizer"), nb::arg("options"), nb::arg("limited") = true,
      "Throws what a worker of this job would throw before its first step. Returns the largest "
      "peak memory of a worker, in bytes.");
  m.def(
      "check_training_options",
      [](const nb::dict& values) { check_training_options(job_options(values)); },
      "Throws if options of a job are wrong, whatever its model is.");
  m.def("default_micro_batches", &default_micro_batches,
        "Returns the default number of micro-batches per step, for a method or for rows.");
  m.def("balance_stages", &balance_stages,
        "Returns the first block of each stage of a cut into this number of stages, balanced by "
        "the floating-point operations of blocks.");
  m.def("list_checkpoints", &list_checkpoints);
  nb::class_<FolderLock>(m, "FolderLock",
                         "A lock on a folder, so that other jobs can't save into it.");
  m.def(
      "claim_folder",
      [](const std::string& folder, comm::Transport& links) {
        return claim_folder(folder, env().job, links);
      },
      nb::call_guard<nb::gil_scoped_release>(),
      "Creates and locks a folder for a training. Throws on all workers if it can't be written, if "
      "another job saves there, or if a worker doesn't see it. Worker 0 gets the lock, and the "
      "others get None.");
  m.def("read_run", &read_run, "Returns (step, run as JSON) of the newest checkpoint of a folder.");
  m.def(
      "gather_texts",
      [](comm::Transport& links, const std::string& mine) {
        return gather_texts(mine, links,
                            {comm::make_tag(kSaveTag, 0, 0, 7, 0), "a text of every worker"});
      },
      nb::call_guard<nb::gil_scoped_release>(),
      "Returns the texts of all workers, on every worker.");
}

}  // namespace

void bind_training(nb::module_& m) {
  bind_training_options(m);
  bind_questions(m);
}

}  // namespace hetu
