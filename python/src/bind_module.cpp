// Stages that Python computes, for hetu.torch. The interpreter lock is held inside calls to Python
// only, and never during a wait.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "executor/module/module_average.h"
#include "executor/module/module_job.h"
#include "net/transport/collective.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/cost/partition.h"
#include "python/src/bindings.h"
#include "python/src/settings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

using Key = ModuleStages::Key;

Key key_of(const std::string& kind, int placement, int part, int micro) {
  for (const Kind known :
       {Kind::SendForward, Kind::RecvForward, Kind::SendBackward, Kind::RecvBackward})
    if (kind == kind_name(known)) return {known, placement, part, micro};
  fail(Code::InvalidArgument, "'{}' is not a send or receive", kind);
}

// Returns an owner of a Python object. The last copy releases the object under the interpreter
// lock, in whatever thread it is.
std::shared_ptr<void> kept(nb::object object) {
  auto* const held = new nb::object(std::move(object));
  return {held, [](void* one) {
            const nb::gil_scoped_acquire lock;
            delete static_cast<nb::object*>(one);
          }};
}

nb::object array_of(ModuleStages::Message message) {
  const auto* const data = static_cast<const std::uint8_t*>(message.data);
  const std::size_t bytes = message.bytes;
  const nb::capsule owner(
      new std::shared_ptr<void>(std::move(message.owner)),
      [](void* one) noexcept { delete static_cast<std::shared_ptr<void>*>(one); });
  // The message has no other owner, so the caller may write to it.
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(const_cast<std::uint8_t*>(data),
                                                       {bytes},  // NOLINT
                                                       owner));
}

std::vector<StagePair> pairs_of(const std::vector<std::pair<int, int>>& pairs) {
  std::vector<StagePair> out;
  for (const auto& [first, second] : pairs) out.push_back({first, second});
  return out;
}

struct Compute {
  nb::callable function;
  void operator()(const Instr& i) const {
    const nb::gil_scoped_acquire lock;
    function(kind_name(i.kind), i.stage, i.micro);
  }
};

using Owners = std::vector<std::pair<int, std::int64_t>>;  // (worker, elements) per owner

using SlotArray = nb::ndarray<nb::device::cpu, nb::c_contig>;

void set_gradients(ModuleJob& job, int placement, int model_stage,
                   const std::vector<std::vector<SlotArray>>& arrays, const std::vector<int>& parts,
                   const std::vector<Owners>& owners) {
  std::vector<ModuleGradient> out;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const SlotArray& first = arrays[i].at(0);
    const bool single = first.dtype() == nb::dtype<float>();
    require(single || first.dtype() == nb::dtype<double>(),
            "gradients to be summed must be float32 or float64");
    out.push_back({parts.at(i), single ? DType::Float32 : DType::Float64, first.data(),
                   static_cast<std::int64_t>(first.size())});
    for (const auto& [worker, count] : owners.at(i)) out.back().owners.push_back({worker, count});
    for (const SlotArray& slot : arrays[i]) out.back().slots.push_back(slot.data());
  }
  job.set_gradients(placement, model_stage, std::move(out));
}

// Returns the first piece of each stage. A stage needs its weights, and what it keeps of as many
// micro-batches as 1F1B has in progress there: `stages - stage`.
std::vector<int> balanced_cut(const std::vector<double>& seconds,
                              const std::vector<double>& weight_bytes,
                              const std::vector<double>& kept_bytes, int stages,
                              double most_bytes) {
  const auto bytes = [&](int stage, int first, int end) {
    double sum = 0;
    for (int i = first; i < end; ++i)
      sum += weight_bytes.at(i) + kept_bytes.at(i) * (stages - stage);  // NOLINT: few pieces
    return sum;
  };
  StageDevices devices;
  if (most_bytes > 0)
    devices.fits = [&](int stage, int first, int end) {
      return bytes(stage, first, end) <= most_bytes;
    };
  require(static_cast<std::size_t>(stages) <= seconds.size(),
          "cannot cut a model into {} stages, because it has {} piece(s); choose fewer stages",
          stages, seconds.size());
  const auto cut = balance_blocks(seconds, stages, devices);
  if (!cut)
    fail(Code::InvalidArgument,
         "no cut into {} stages keeps each within {:.0f} bytes; the whole model needs {:.0f} in "
         "one stage; use more stages, smaller micro-batches or recompute",
         stages, most_bytes, bytes(stages - 1, 0, static_cast<int>(seconds.size())));
  return *cut;
}

using Bytes = nb::ndarray<std::uint8_t, nb::device::cpu, nb::c_contig>;

void gather_from_owners(comm::Transport& links, const comm::Group& group,
                        const std::vector<int>& owners, const std::vector<Bytes>& arrays,
                        int number, const std::string& what) {
  std::vector<comm::OwnedPart> parts;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    parts.push_back({owners.at(i), arrays[i].data(), arrays[i].size()});
  const nb::gil_scoped_release free;
  comm::gather_from_owners(links, group, parts,
                           {comm::make_tag(kOwnerTag, 0, 0, 0, number), [&] { return what; }});
}

nb::list bytes_of(const std::vector<std::string>& texts) {
  nb::list out;
  for (const std::string& text : texts) out.append(nb::bytes(text.data(), text.size()));
  return out;
}

void bind_messages(nb::class_<ModuleJob>& job) {
  job.def("expect",
          [](ModuleJob& j, const std::string& kind, int placement, int part, int micro,
             std::size_t bytes) { j.stages().expect(key_of(kind, placement, part, micro), bytes); })
      .def("give",
           [](ModuleJob& j, const std::string& kind, int placement, int part, int micro,
              std::uintptr_t address, std::size_t bytes, nb::object owner) {
             j.stages().give(key_of(kind, placement, part, micro),
                             {reinterpret_cast<const void*>(address), bytes,  // NOLINT
                              kept(std::move(owner))});
           })
      .def("take",
           [](ModuleJob& j, const std::string& kind, int placement, int part, int micro) {
             return array_of(j.stages().take(key_of(kind, placement, part, micro)));
           })
      .def(
          "set_gradients", &set_gradients, nb::arg("placement"), nb::arg("model_stage"),
          nb::arg("arrays"), nb::arg("parts"), nb::arg("owners"),
          "Sets the gradients of a placement: for each, the array of each slot (one slot, unless "
          "sums are in a tree), the part that it belongs to, and the number of elements whose sums "
          "each worker needs (no owners: every worker needs all sums). The arrays must exist until "
          "they are set again.")
      .def(
          "sums",
          [](const ModuleJob& j, int placement) {
            const ModuleJob::Sums sums = j.sums(placement);
            nb::dict steps;
            for (const auto& [micro, step] : sums.steps)
              steps[nb::cast(micro)] = nb::make_tuple(step.slot, step.adds, step.merges);
            return nb::make_tuple(sums.slots, steps);
          },
          nb::arg("placement"),
          "Returns how the gradients of a placement are added in the order of a tree: the number "
          "of "
          "slots, and by micro-batch (slot, True if it is added to what the slot holds, [(slot, "
          "slot that is added to it), ...]).")
      .def("set_scalar", [](ModuleJob& j, std::size_t index, double value) {
        j.stages().scalars().at(index) = value;
      });
}

using Values = nb::ndarray<float, nb::device::cpu, nb::c_contig>;

DeviceSpan span_of(const Values& values) {
  return host_span(values.data(), static_cast<std::int64_t>(values.size()));
}

void end_run(ModuleAverage& average, const std::vector<Values>& states) {
  std::vector<DeviceSpan> spans;
  for (const Values& values : states) spans.push_back(span_of(values));
  const nb::gil_scoped_release free;
  average.end_run(std::move(spans));
}

void bind_average(nb::module_& m) {
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<ModuleAverage>(m, "ModuleAverage",
                            "One worker of pipelines that average the weights of a module.")
      .def(
          "__init__",
          [](ModuleAverage* self, const nb::dict& averaging, comm::Transport& links,
             int pipelines) {
            const Averaging how = averaging_of(averaging);
            const nb::gil_scoped_release unlocked;
            new (self) ModuleAverage(how, links, pipelines);
          },
          nb::arg("averaging"), nb::arg("links"), nb::arg("pipelines"), nb::keep_alive<1, 3>())
      .def(
          "begin_run",
          [](ModuleAverage& a, std::int64_t step, std::int64_t updates, const Values& weights) {
            a.begin_run(step, updates, span_of(weights));
          },
          nb::arg("step"), nb::arg("updates"), nb::arg("weights"),
          "Starts a run of about this number of updates of each pipeline. The array must exist "
          "until the end of the run.")
      .def("computed", &ModuleAverage::computed, free)
      .def("updated", &ModuleAverage::updated, free)
      .def("stop_soon", &ModuleAverage::stop_soon, free)
      .def("ends_after",
           [](const ModuleAverage& a, std::int64_t updates) { return a.stop_after() <= updates; })
      .def("end_run", &end_run, nb::arg("states"),
           "Ends the run. The arrays become their means over pipelines.")
      .def("mean", &ModuleAverage::mean, free)
      .def("mean_group", [](ModuleAverage& a) { return a.take_counts().mean(); });
}

}  // namespace

void bind_module(nb::module_& m) {
  nb::class_<ModuleJob> job(m, "ModuleJob", "One worker of a job whose stages Python computes.");
  job.def(
         "__init__",
         [](ModuleJob* self, const Schedule& plan, comm::Transport& links, int pipelines,
            const std::vector<std::pair<int, int>>& edges,
            const std::vector<std::pair<int, int>>& tied, nb::callable compute, bool apart,
            bool tree) {
           Lowering how;
           how.pipelines = pipelines;
           how.extra_edges = pairs_of(edges);
           how.tied = pairs_of(tied);
           how.reduce_scalars = true;
           how.sync = SyncPlace::EagerOpt;
           new (self) ModuleJob(plan, how, links, Compute{std::move(compute)}, apart, tree);
         },
         nb::arg("plan"), nb::arg("links"), nb::arg("pipelines"), nb::arg("edges"), nb::arg("tied"),
         nb::arg("compute"), nb::arg("apart"), nb::arg("tree"), nb::keep_alive<1, 3>())
      .def_prop_ro("pipeline", &ModuleJob::pipeline)
      .def_prop_ro("row", &ModuleJob::row)
      .def_prop_ro("plan", &ModuleJob::plan, nb::rv_policy::reference_internal)
      .def_prop_ro("peak_activations", &ModuleJob::peak_activations)
      .def("recomputed", &ModuleJob::recomputed)
      .def("run", &ModuleJob::run, nb::call_guard<nb::gil_scoped_release>(), nb::arg("step"),
           nb::arg("scalars"), nb::arg("training"),
           "Runs one step. Returns the sums of all workers' scalars.")
      .def("record", &ModuleJob::record, nb::call_guard<nb::gil_scoped_release>())
      .def("write_trace", &ModuleJob::write_trace, nb::call_guard<nb::gil_scoped_release>());
  bind_messages(job);
  m.def("balanced_cut", &balanced_cut, nb::arg("seconds"), nb::arg("weight_bytes"),
        nb::arg("kept_bytes"), nb::arg("stages"), nb::arg("most_bytes"),
        "Returns the first piece of each stage, by the time and memory that the pieces need. 0 "
        "bytes: no limit.");
  m.def("write_trace", &write_run, nb::call_guard<nb::gil_scoped_release>(), nb::arg("path"),
        nb::arg("workers"), nb::arg("plan"),
        "Writes one trace of the events that workers noted (JSON of each), with the times that the "
        "plan predicts for them.");
  m.def(
      "exchange_bytes",
      [](comm::Transport& links, const comm::Group& group, const nb::bytes& mine, int number,
         const std::string& what) {
        const std::string text(mine.c_str(), mine.size());
        std::vector<std::string> all;
        {
          const nb::gil_scoped_release free;
          all = exchange_texts(links, group, text, number, [&] { return what; });
        }
        return bytes_of(all);
      },
      nb::arg("links"), nb::arg("group"), nb::arg("mine"), nb::arg("number"), nb::arg("what"),
      "Returns the bytes of a group's workers, in the group's order, which ascends. All workers of "
      "the group call it with the same number. `what` names the wait in errors.");
  m.def("gather_from_owners", &gather_from_owners, nb::arg("links"), nb::arg("group"),
        nb::arg("owners"), nb::arg("arrays"), nb::arg("number"), nb::arg("what"),
        "Gives each array the bytes of its owner. All workers of the group call it with the same "
        "number. `what` names the wait in errors.");
  bind_average(m);
}

}  // namespace hetu
