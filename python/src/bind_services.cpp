// The coordinator and the parameter servers for heturun, which runs each of them in a Python
// process.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <utility>

#include "base/error.h"
#include "ps/coordinator/serve.h"
#include "ps/server/serve.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

nb::object keys_for_python(const std::string& endpoints) {
  if (!ps::can_serve_coordinator()) return nb::none();
  const curve::KeyPair server = curve::make_key_pair();
  const curve::KeyPair worker = curve::make_key_pair();
  nb::dict keys;
  keys["server_secret"] = server.secret_key;
  keys["worker_public"] = worker.public_key;
  keys["address"] = ps::coordinator_address(endpoints, server.public_key, worker);
  return keys;
}

void serve(const std::string& endpoint, int listener, const std::string& server_secret,
           const std::string& worker_public, int control, int report) {
  ps::ServeOptions options;
  options.endpoint = endpoint;
  options.listener_fd = listener;
  options.server_secret = server_secret;
  options.client_key = worker_public;
  options.control_fd = control;
  options.report_fd = report;
  const nb::gil_scoped_release release;
  ps::serve_coordinator(options);
}

/// Descriptors of the listening socket, of the control pipe, and of the pipe for reports.
using Descriptors = std::tuple<int, int, int>;

void serve_parameters(const std::string& endpoint, const Descriptors& descriptors,
                      const std::string& server_secret, const std::string& worker_public,
                      std::pair<int, int> place, const std::pair<std::string, std::string>& log) {
  ps::ServeParameters options;
  options.endpoint = endpoint;
  std::tie(options.listener_fd, options.control_fd, options.report_fd) = descriptors;
  options.server_secret = server_secret;
  options.client_key = worker_public;
  options.server = place.first;
  options.servers = place.second;
  options.log_folder = log.first;
  options.job = log.second;
  const nb::gil_scoped_release release;
  ps::serve_parameters(options);
}

}  // namespace

void bind_services(nb::module_& m) {
  m.def("service_keys", &keys_for_python, nb::arg("endpoints"),
        "Returns new keys of a process that serves a job: server_secret, worker_public, and the "
        "address for its workers, which contains their keys. Returns None in a build without "
        "ZeroMQ.");
  m.def("serve_coordinator", &serve, nb::arg("endpoint"), nb::arg("listener"),
        nb::arg("server_secret"), nb::arg("worker_public"), nb::arg("control"), nb::arg("report"),
        "Serves one job on a listening socket until every worker has left or `control` ends. "
        "Pipelines that the job continues without are reported to `report`.");
  m.def("serve_parameters", &serve_parameters, nb::arg("endpoint"), nb::arg("descriptors"),
        nb::arg("server_secret"), nb::arg("worker_public"), nb::arg("place"), nb::arg("log"),
        "Serves the parts of one server until its control line ends. `place` = (the server's "
        "number, the number of servers). `descriptors` = (a listening socket, the control line, a "
        "pipe that gets a report once the server has applied an update). `log` = (a folder or "
        "\"\", the job of the log), from which the server continues.");
}

}  // namespace hetu
