#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "config/cluster.h"
#include "executor/device/device.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

nb::tuple read_cluster_for_python(const std::string& path) {
  const Cluster cluster = read_cluster(path);
  nb::list nodes;
  for (const ClusterNode& node : cluster.nodes) {
    nb::dict row;
    row["host"] = node.host;
    row["servers"] = node.servers;
    row["workers"] = node.workers;
    row["chief"] = node.chief;
    nodes.append(row);
  }
  nb::list warnings;
  for (const std::string& line : cluster.warnings) warnings.append(line);
  return nb::make_tuple(nodes, warnings);
}

}  // namespace

void bind_config(nb::module_& m) {
  m.def("read_cluster", &read_cluster_for_python, nb::arg("path"),
        "Reads a cluster file. Returns (nodes as dicts of host, servers, workers and chief; "
        "warnings).");
  m.def("device_names", &device_names,
        "Returns the names of the devices that workers of this build can use.");
  m.def("cuda_problem", &cuda_problem,
        "Returns the reason why this process can't compute on CUDA, or '' if it can.");
}

}  // namespace hetu
