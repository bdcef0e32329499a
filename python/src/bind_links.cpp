// The links of a job's workers, for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "executor/comm/inproc.h"
#include "executor/job/links.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {

void bind_links(nb::module_& m) {
  nb::class_<comm::Transport>(m, "Transport", "Links of this worker to the others of its job.")
      .def_prop_ro("worker", &comm::Transport::worker)
      .def_prop_ro("workers", &comm::Transport::workers)
      .def("host_of", &comm::Transport::host_of)
      .def("abort", &comm::Transport::abort, nb::call_guard<nb::gil_scoped_release>())
      .def("leave", &comm::Transport::leave, nb::call_guard<nb::gil_scoped_release>())
      .def("give_up", &comm::Transport::give_up, nb::call_guard<nb::gil_scoped_release>());
  m.def("connect", &open_links, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "thread_links",
      [](int workers) {
        nb::list out;
        for (auto& links : comm::make_inproc(workers)) out.append(nb::cast(std::move(links)));
        return out;
      },
      "The links of a job whose workers are threads of this process.");
}

}  // namespace hetu
