// Training jobs for Python: steps, pipelines, checkpoints and state of one worker.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "config/env.h"
#include "datasets/loader.h"
#include "executor/job/compare_single.h"
#include "executor/job/executor.h"
#include "executor/job/saving.h"
#include "executor/job/shared_samples.h"
#include "executor/state/checkpoint.h"
#include "pipeline/ir/plan_file.h"
#include "ps/coordinator/group_client.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"
#include "python/src/settings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

nb::dict result_dict(StepResult r) {
  nb::dict scalars;
  for (const NamedScalar& s : r.scalars) scalars[s.name.c_str()] = s.value;
  nb::dict samples, sums;
  for (NamedTensor& t : r.tensors)
    (t.per_sample ? samples : sums)[t.name.c_str()] =
        own_array(t.dtype, t.shape, std::move(t.bytes));
  nb::dict out;
  out["step"] = r.step;
  out["scalars"] = scalars;
  out["samples"] = samples;
  out["sums"] = sums;
  out["rows"] = r.rows;
  out["gradient_norm"] = r.gradient_norm;
  out["learning_rate"] = r.learning_rate;
  out["skipped"] = r.skipped;
  out["loss_scale"] = r.loss_scale;
  out["stop_asked"] = r.stop_asked;
  out["last"] = r.last;
  out["batches"] = r.batches;
  return out;
}

// Returns nullopt after the last row if the loader gives every row once.
std::optional<StepResult> validate(Job& job, Loader* loader, const ValidateOptions& how,
                                   bool once) {
  if (loader != nullptr)
    require(loader->gives_every_row_once() == once,
            "expected a loader that {} every row once; Data.loader makes one with Data._options",
            once ? "gives" : "does not give");
  if (once) return job.validate_rows(loader, how);
  return job.validate(loader, how);
}

// `compare`: the comparison with a single process, which then repeats the step on the batches of
// all pipelines; null if there is none.
std::optional<StepResult> next(Job& job, Loader* loader, CompareSingle* compare,
                               const std::vector<Loader*>& of_all) {
  const auto whole = job.lock();
  if (compare != nullptr) compare->begin();
  std::optional<StepResult> result = job.next(loader);
  if (compare != nullptr && result) compare->check(*result, {of_all.begin(), of_all.end()});
  return result;
}

// Returns the tensor itself if it is float32 in host memory, or else a read-only copy.
nb::object array_of(const Job& job, const StateTensor& t) {
  const std::vector<std::size_t> shape(t.shape.begin(), t.shape.end());
  if (t.values.device->in_host_memory() && t.values.dtype() == DType::Float32)
    return nb::cast(
        nb::ndarray<nb::numpy, float>(t.values.data, shape.size(), shape.data(), nb::find(job)));
  return own_array<const float>(t.values.values(), shape);
}

nb::list tensor_list(const Job& job, const std::vector<StateTensor>& tensors) {
  nb::list out;
  for (const StateTensor& t : tensors)
    out.append(nb::make_tuple(t.name, t.state, array_of(job, t), t.owner));
  return out;
}

// `run_json` is called when the checkpoint is written. Before that, the pipeline that was to write
// it may have died.
void save(Job& job, const std::string& folder, const std::function<std::string()>& run_json,
          int keep) {
  const auto whole = job.lock();
  in_one_pipeline(job, [&](const std::string& saver) {
    const SavePlace place = {.folder = folder, .keep = keep, .saver = saver, .job = env().job};
    save_checkpoint(place, job.step(), run_json(), job.save_parts(), job.transport());
  });
}

// Returns the pipelines that have left the job, and what was lost with them.
nb::list losses(Job& job) {
  nb::list out;
  const Membership* const members = job.membership();
  if (members == nullptr) return out;
  for (const ps::Lost& lost : members->losses()) {
    nb::dict one;
    one["pipeline"] = lost.pipeline;
    one["reason"] = lost.reason;
    one["updates"] = lost.updates;
    one["averaged"] = lost.averaged;
    out.append(one);
  }
  return out;
}

nb::dict counters_of(const Job& job) {
  nb::dict out;
  for (const auto& [name, c] : job.table_counters()) {
    nb::dict one;
    c.each([&](const char* what, std::int64_t count) { one[what] = count; });
    out[name.c_str()] = one;
  }
  return out;
}

void load(Job& job, const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  std::vector<std::string> known;
  for (const Parameter& p : job.plan().graph.parameters) known.push_back(p.name);
  for (const StateBuffer& b : job.plan().graph.buffers) known.push_back(b.name);
  check_parameter_names(manifest, known);
  job.load(manifest);
}

nb::list names_of(const std::vector<FeedSpec>& fields) {
  nb::list out;
  for (const FeedSpec& f : fields) out.append(f.name);
  return out;
}

using JobClass = nb::class_<Job>;

// Binds construction and steps.
void bind_steps(JobClass& job) {
  job.def(
         "__init__",
         [](Job* self, const Graph& graph, const nb::dict& optimizer, const JobOptions& options,
            comm::Transport& links) {
           const OptimizerConfig config = optimizer_of(optimizer);
           // A copy, because other threads of Python may change the object.
           // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
           const JobOptions how = with_servers(graph, options);
           // The workers may be threads, and they wait for each other in the constructor.
           nb::gil_scoped_release free;
           new (self) Job(graph, config, how, links);
         },
         nb::keep_alive<1, 5>())
      .def(
          "train",
          [](Job& j, Loader* loader) {
            StepResult r;
            {
              nb::gil_scoped_release free;
              r = j.train(loader);
            }
            return result_dict(std::move(r));
          },
          nb::arg("loader").none())
      .def(
          "validate",
          [](Job& j, Loader* loader, const std::vector<std::string>& fetches, bool once,
             bool asks_to_stop) -> nb::object {
            std::optional<StepResult> r;
            {
              nb::gil_scoped_release free;
              r = validate(j, loader, {fetches, std::nullopt, asks_to_stop}, once);
            }
            if (!r) return nb::none();
            return result_dict(*std::move(r));
          },
          nb::arg("loader").none(), nb::arg("fetches") = std::vector<std::string>(),
          nb::arg("once") = false, nb::arg("asks_to_stop") = false,
          "Runs forward only. `fetches`: the values to compute; empty: all. `once`: the loader "
          "gives every row once, and None follows the last row. `asks_to_stop`: the result of "
          "every worker has stop_asked.")
      .def(
          "begin_run", [](Job& j, std::int64_t steps) { j.begin_run(steps); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Starts a run with this number of steps. next() returns their results.")
      .def(
          "next",
          [](Job& j, Loader* loader, CompareSingle* compare,
             const std::vector<Loader*>& of_all) -> nb::object {
            std::optional<StepResult> r;
            {
              nb::gil_scoped_release free;
              r = next(j, loader, compare, of_all);
            }
            if (!r) return nb::none();
            return result_dict(*std::move(r));
          },
          nb::arg("loader").none(), nb::arg("compare").none() = nb::none(),
          nb::arg("of_all") = std::vector<Loader*>(),
          "Returns the result of the next step of the run, or None after the last step. `compare`: "
          "the comparison with a single process. `of_all`: loaders of all pipelines, on the worker "
          "that compares.");
}

// Binds the properties of a job among pipelines that average weights.
void bind_pipelines(JobClass& job) {
  job.def_prop_ro("averages", [](Job& j) { return j.averager() != nullptr; })
      .def_prop_ro(
          "in_first_pipeline", [](const Job& j) { return j.in_first_pipeline(); },
          "True in the pipeline that logs. If that pipeline fails, another pipeline logs.")
      .def_prop_ro(
          "may_lose",
          [](Job& j) { return j.membership() != nullptr && j.membership()->may_lose(); },
          "True if the job continues without a pipeline that fails.")
      .def_prop_ro(
          "living", [](Job& j) { return j.membership()->living(); },
          "The pipelines that took part in the last step together.")
      .def_prop_ro("losses", &losses)
      .def(
          "exchange",
          [](Job& j, const std::string& mine) { return j.membership()->exchange(mine); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Returns the texts of this worker's copies in the living pipelines, by pipeline.")
      .def_prop_ro(
          "is_reporter", [](const Job& j) { return j.is_reporter(); },
          "True in the worker that has its pipeline's results.")
      .def(
          "take_group_counts",
          [](Job& j) {
            const GroupCounts counts = j.averager()->take_counts();
            return std::make_pair(counts.mean(), counts.by_size);
          },
          "Returns (mean group size, groups by size) since the last call.");
}

// Binds readers and tracing.
void bind_course(JobClass& job) {
  job.def(
         "readers",
         [](const Job& j, const std::vector<std::string>& single) {
           return std::make_unique<Readers>(j, single);
         },
         nb::keep_alive<0, 1>(), nb::call_guard<nb::gil_scoped_release>(),
         "Returns which workers of the job read which rows. Every worker calls it. `single`: "
         "fields of the single process that the run is compared with, on worker 0.")
      .def_prop_ro("asynchronous", [](const Job& j) { return j.plan().asynchronous; })
      .def_prop_ro("table_counters", &counters_of,
                   "By table on servers that this worker uses: what it looked up and sent.")
      .def("ask_to_stop", [](Job& j) { j.ask_to_stop(); })
      .def("record", [](Job& j, bool on) { j.record(on); })
      .def(
          "write_trace", [](Job& j, const std::string& path) { j.write_trace(path); },
          nb::call_guard<nb::gil_scoped_release>());
}

// Binds the loss scale of float16.
void bind_loss_scale(JobClass& job) {
  job.def(
         "loss_scale",
         [](const Job& j) -> nb::object {
           const LossScale& scale = j.loss_scale();
           if (!scale.is_on() && scale.state().skipped == 0) return nb::none();
           nb::dict out;
           out["scale"] = scale.state().scale;
           out["clean"] = scale.state().clean;
           out["skipped"] = scale.state().skipped;
           return out;
         },
         "In float16, the state of the loss scale that a checkpoint stores; None for other dtypes.")
      .def(
          "resume_loss_scale",
          [](Job& j, double scale, std::int64_t clean, std::int64_t skipped) {
            j.resume_loss_scale({scale, clean, skipped});
          },
          nb::arg("scale"), nb::arg("clean"), nb::arg("skipped"))
      .def_prop_ro(
          "scales_loss", [](const Job& j) { return j.loss_scale().is_on(); },
          "True if the job computes in float16.");
}

// Binds weights, checkpoints and other state.
void bind_state(JobClass& job) {
  job.def(
         "state", [](const Job& j) { return tensor_list(j, j.state()); },
         "(parameter, state, array, owner) of each tensor. The arrays are the worker's own memory: "
         "only read them.")
      .def(
          "gradients", [](const Job& j) { return tensor_list(j, j.gradients()); },
          "The gradient sums of the last step, times gradient_scale, before clipping.")
      .def_prop_ro(
          "gradient_scale", [](const Job& j) { return j.gradient_scale(); },
          "In float16, the loss scale of the last step; 1 for other dtypes.")
      .def("save", &save, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "save_model",
          [](Job& j, const std::string& folder, const std::vector<std::string>& fetches,
             const std::vector<std::string>& outputs) { save_model(j, folder, fetches, outputs); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Saves the graph that predicts these fetches, and its weights. `outputs`: their names in "
          "the model; empty: the same. Every worker calls it.")
      .def("load", &load, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "set_rate_factor", [](Job& j, double factor) { j.set_rate_factor(factor); },
          "Multiplies the learning rate of later updates.")
      .def("set_step", [](Job& j, std::int64_t step) { j.set_step(step); })
      .def_prop_ro("step", [](const Job& j) { return j.step(); })
      .def_prop_ro("pipeline", [](const Job& j) { return j.plan().pipeline; })
      .def_prop_ro("row", [](const Job& j) { return j.plan().row; })
      .def_prop_ro("stage", [](const Job& j) { return j.plan().stage(); })
      .def_prop_ro("first_block", [](const Job& j) { return j.plan().options.first_block; })
      .def_prop_ro("cuts", [](const Job& j) { return j.plan().options.cuts; })
      .def_prop_ro("state_dtype", [](const Job& j) { return j.plan().options.state_dtype; })
      .def_prop_ro("memory", [](const Job& j) { return to_string(j.plan().memory); })
      .def_prop_ro(
          "activation_peaks",
          [](const Job& j) {
            const ActivationPeak plan = j.plan().planned_peak(), run = j.measured_peak();
            return nb::make_tuple(nb::make_tuple(plan.micros, plan.bytes),
                                  nb::make_tuple(run.micros, run.bytes));
          },
          "((micro-batches, bytes) that the plan keeps at once, (micro-batches, bytes) that were "
          "kept so far).")
      .def_prop_ro("memory_peak", [](const Job& j) { return j.plan().memory.peak(); })
      .def_prop_ro("fields", [](const Job& j) { return names_of(j.plan().fields); });
}

}  // namespace

void bind_executor(nb::module_& m) {
  JobClass job(m, "Job", "One worker's part of a training job.");
  bind_steps(job);
  bind_pipelines(job);
  bind_course(job);
  bind_loss_scale(job);
  bind_state(job);
  nb::class_<CompareSingle>(m, "CompareSingle", "Compares each step of a job with one process.")
      .def(
          "__init__",
          [](CompareSingle* self, Job& run) { new (self) CompareSingle(run.given_graph(), run); },
          nb::keep_alive<1, 2>())
      .def_prop_ro(
          "fields", [](const CompareSingle& c) { return names_of(c.fields()); },
          "The fields that the single process reads, on worker 0.")
      .def_prop_ro("summary", &CompareSingle::summary, "The result, on worker 0.");
}

}  // namespace hetu
