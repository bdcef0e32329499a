// The links between the workers of a job, for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "base/machine_cores.h"
#include "executor/job/links.h"
#include "executor/loop/work_time.h"
#include "net/transport/inproc.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Lets Ctrl-C end a wait for other workers, as it ends Python's own waits.
void look_at_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::tuple started_for_python() {
  StartedWorkers started;
  {
    const nb::gil_scoped_release free;
    started = started_workers(look_at_signals);
  }
  nb::list hosts;
  for (const HostWorkers& host : started.hosts)
    hosts.append(nb::make_tuple(host.host, host.workers));
  return nb::make_tuple(hosts, started.local_workers);
}

}  // namespace

void bind_links(nb::module_& m) {
  nb::class_<comm::Transport>(m, "Transport",
                              "The links of this worker to the other workers of its job.")
      .def_prop_ro("worker", &comm::Transport::worker)
      .def_prop_ro("workers", &comm::Transport::workers)
      .def("host_of", &comm::Transport::host_of)
      .def("position", &comm::Transport::own_position)
      .def("abort", &comm::Transport::abort, nb::call_guard<nb::gil_scoped_release>())
      .def("leave", &comm::Transport::leave, nb::call_guard<nb::gil_scoped_release>())
      .def("give_up", &comm::Transport::give_up, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "work_s", [] { return 1e-9 * static_cast<double>(WorkTime::total()); },
      "Returns the seconds that this process has spent in compute instructions.");
  m.def(
      "connect", [](int number) { return open_links(number, look_at_signals); },
      nb::call_guard<nb::gil_scoped_release>());
  m.def("machine_cores", &machine_cores,
        "Returns the number of processors that this process may use, by its CPU affinity and the "
        "limit of its control groups.");
  m.def("started", &started_for_python,
        "Returns the workers of the job: (hosts as (name, workers), empty if unknown; number of "
        "workers on this host). In a job that is started by hand, the first call waits for all "
        "workers.");
  m.def(
      "thread_links",
      [](int workers) {
        nb::list out;
        for (auto& links : comm::make_inproc(workers)) out.append(nb::cast(std::move(links)));
        return out;
      },
      "Returns the links of a job whose workers are threads of this process.");
}

}  // namespace hetu
