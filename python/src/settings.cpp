#include "python/src/settings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/error.h"
#include "config/env.h"
#include "executor/device/device.h"
#include "ps/client/parameter_client.h"
#include "ps/coordinator/group_client.h"
#include "python/src/bindings.h"
#include "python/src/set_fields.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Returns this worker's position if each pipeline is a separate job (heturun --on-failure shrink).
// A check has no such position.
std::optional<Apart> apart_of(const Env& e) {
  if (e.pipelines == 1 || e.check) return std::nullopt;
  const ps::Endpoint own = ps::endpoint_of_worker(e.coordinator, e.worker);
  comm::MeshAddress address;
  address.endpoint = own.endpoint;
  address.public_key = own.public_key;
  address.secret_key = own.secret_key;
  return Apart{e.worker / (e.workers / e.pipelines), address};
}

Servers servers_of_job() {
  Servers servers;
  servers.connect = [](const ps::ParameterOptions& options) {
    return ps::connect_servers(env().servers, options);
  };
  return servers;
}

// Sets the options that are not plain values and therefore not fields.
void set_parts(JobOptions& o, const nb::dict& parts) {
  const auto part = [&](const char* name) { return parts.get(name, nb::none()); };
  if (!part("plan").is_none()) o.plan = nb::cast<Schedule>(part("plan"));
  if (!part("averaging").is_none())
    o.averaging = averaging_of(nb::cast<nb::dict>(part("averaging")));
  if (!part("stragglers").is_none())
    set_fields(injection_fields(o.stragglers), nb::cast<nb::dict>(part("stragglers")));
  // The FILE has already determined the replicas.
  if (!part("replicas").is_none()) o.given.insert("replicas");
}

}  // namespace

Averaging averaging_of(const nb::dict& d) {
  Averaging how;
  set_fields(fields(how), d);
  how.apart = apart_of(env());
  how.connect = [](const ps::ClientOptions& options) {
    return ps::connect_coordinator(env().coordinator, options);
  };
  return how;
}

LearningRate rate_of(const nb::dict& d) {
  LearningRate r;
  set_fields(fields(r), d);
  return r;
}

OptimizerConfig optimizer_of(const nb::dict& d) {
  OptimizerConfig c = defaults_of(parse_optimizer(nb::cast<std::string>(d["kind"])));
  nb::dict settings;
  for (const auto& [key, value] : d)
    if (nb::cast<std::string>(key) != "rate") settings[key] = value;
  set_fields(fields(c), settings);
  c.rate = rate_of(nb::cast<nb::dict>(d["rate"]));
  return c;
}

JobOptions job_options(const nb::dict& d) {
  JobOptions o;
  nb::dict plain, parts;
  for (const auto& [key, value] : d) {
    const auto name = nb::cast<std::string>(key);
    const bool part =
        name == "plan" || name == "averaging" || name == "stragglers" || name == "replicas";
    (part ? parts : plain)[key] = value;
  }
  set_fields(joined(fields(o), grid_fields(o)), plain);
  set_parts(o, parts);
  if (o.plan)
    o.micro_batches = o.plan->micro_batches;
  else if (o.given.count("micro_batches") == 0)
    o.micro_batches = default_micro_batches(o.method);
  const std::vector<const char*> known = device_names();
  if (std::find(known.begin(), known.end(), o.device) == known.end())
    fail(Code::Unsupported, "device '{}' is not supported; use 'cpu' or 'cuda'",
         o.device.substr(0, 60));
  o.kernels = env().kernels;
  if (wants_servers(o)) o.servers = servers_of_job();
  return o;
}

JobOptions with_servers(const Graph& graph, JobOptions o) {
  // A check before the start cannot connect to servers yet.
  if (has_served_tables(graph) && (env().check || !env().servers.empty()))
    o.servers = servers_of_job();
  return o;
}

}  // namespace hetu
