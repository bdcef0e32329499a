// The parts of the Python module `hetu._hetu`; each lives in one bind_*.cpp, and module.cpp calls
// them.
#pragma once
#include <nanobind/nanobind.h>

namespace hetu {

/// Cluster files and environment variables: read_cluster, env, env_table.
void bind_config(nanobind::module_& m);

}  // namespace hetu
