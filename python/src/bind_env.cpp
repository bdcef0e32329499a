#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "config/env.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

const char* level_name(Level level) {
  static const char* const kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

nb::dict env_for_python() {
  const Env& e = env();
  nb::list hosts;
  for (const HostWorkers& host : e.hosts) hosts.append(nb::make_tuple(host.host, host.workers));
  nb::dict values;
  values["timeout_s"] = e.timeout_s;
  values["log_level"] = level_name(e.log_level);
  values["device"] = e.device;
  values["kernels"] = e.kernels == KernelChoice::Reference ? "reference" : "auto";
  values["devices"] = e.devices;
  values["threads"] = e.threads;
  values["imagenet_train_root"] = e.imagenet_train_root;
  values["imagenet_val_root"] = e.imagenet_val_root;
  values["job"] = e.job;
  values["hosts"] = hosts;
  values["progress_fd"] = e.progress_fd;
  values["pipelines"] = e.pipelines;
  values["check"] = e.check;
  values["by_hand"] = e.by_hand;
  values["worker"] = e.worker;
  values["workers"] = e.workers;
  values["local_worker"] = e.local_worker;
  values["local_workers"] = e.local_workers;
  return values;
}

nb::list env_table_for_python() {
  nb::list rows;
  for (const EnvRow& row : env_table()) {
    rows.append(nb::make_tuple(row.name, row.fallback, row.set_by, row.meaning));
  }
  return rows;
}

}  // namespace

void bind_env(nb::module_& m) {
  m.def("env", &env_for_python,
        "Returns the environment variables that Hetu reads, checked, as a dict.");
  m.def("env_table", &env_table_for_python,
        "Returns every environment variable as (name, default, who sets it, meaning).");
}

}  // namespace hetu
