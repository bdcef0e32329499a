#include "python/src/settings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "cli/key_values.h"
#include "config/env.h"
#include "executor/device/device.h"
#include "graph/base/error.h"
#include "pipeline/ir/plan_file.h"
#include "ps/group_client.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// Keys and values as --slow takes them.
Slowdown slowdown_of(const nb::dict& d) {
  std::string text;
  for (const auto& [key, value] : d)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", nb::str(key).c_str(),
                        nb::str(value).c_str());
  try {
    return cli::parse_slow(text);
  } catch (const Error& e) {
    fail(e.code(), "slow '{}': {}", text.substr(0, 80), e.what());
  }
}

// This worker's place where each pipeline is a job of its own (heturun --on-failure shrink).
std::optional<Apart> apart_of(const Env& e) {
  if (e.pipelines == 1) return std::nullopt;
  const ps::Endpoint own = ps::endpoint_of_worker(e.coordinator, e.worker);
  comm::MeshPlace place;
  place.endpoint = own.endpoint;
  place.public_key = own.public_key;
  place.secret_key = own.secret_key;
  return Apart{e.worker / (e.workers / e.pipelines), place};
}

// Settings of hetu.averaging.Averaging.
Averaging averaging_of(const nb::dict& d) {
  Averaging how;
  groups::Options& policy = how.policy;
  policy.method = groups::parse_method(nb::cast<std::string>(d["method"]));
  policy.sync_period = nb::cast<int>(d["sync_period"]);
  policy.min_group = nb::cast<int>(d["min_group"]);
  policy.max_group = nb::cast<int>(d["max_group"]);
  policy.pair_above = nb::cast<int>(d["pair_above"]);
  policy.wait = nb::cast<double>(d["wait"]);
  policy.horizon = nb::cast<double>(d["horizon"]);
  policy.soft = nb::cast<double>(d["soft"]);
  policy.hard = nb::cast<double>(d["hard"]);
  policy.patience = nb::cast<double>(d["patience"]);
  policy.smoothing = nb::cast<double>(d["smoothing"]);
  policy.late_us = nb::cast<std::int64_t>(d["late_us"]);
  policy.late_share = nb::cast<double>(d["late_share"]);
  policy.late_spread = nb::cast<double>(d["late_spread"]);
  policy.seed = nb::cast<std::uint64_t>(d["seed"]);
  policy.weights = groups::parse_weights(nb::cast<std::string>(d["weights"]));
  policy.stale_share = nb::cast<double>(d["stale_share"]);
  how.overlap = nb::cast<bool>(d["overlap"]);
  how.group_log = nb::cast<std::string>(d["group_log"]);
  how.apart = apart_of(env());
  how.connect = [](const ps::ClientOptions& options) {
    return ps::connect_coordinator(env().coordinator, options);
  };
  return how;
}

}  // namespace

LearningRate rate_of(const nb::dict& d) {
  LearningRate r;
  r.kind = parse_rate(nb::cast<std::string>(d["kind"]));
  r.base = nb::cast<double>(d["base"]);
  r.warmup = nb::cast<std::int64_t>(d["warmup"]);
  r.total = nb::cast<std::int64_t>(d["total"]);
  r.every = nb::cast<std::int64_t>(d["every"]);
  r.gamma = nb::cast<double>(d["gamma"]);
  r.power = nb::cast<double>(d["power"]);
  r.floor = nb::cast<double>(d["floor"]);
  r.milestones = nb::cast<std::vector<std::int64_t>>(d["milestones"]);
  return r;
}

OptimizerConfig optimizer_of(const nb::dict& d) {
  OptimizerConfig c;
  c.kind = parse_optimizer(nb::cast<std::string>(d["kind"]));
  c.rate = rate_of(nb::cast<nb::dict>(d["rate"]));
  c.momentum = nb::cast<double>(d["momentum"]);
  c.beta1 = nb::cast<double>(d["beta1"]);
  c.beta2 = nb::cast<double>(d["beta2"]);
  c.epsilon = nb::cast<double>(d["epsilon"]);
  c.l2 = nb::cast<double>(d["l2"]);
  c.weight_decay = nb::cast<double>(d["weight_decay"]);
  c.clip_norm = nb::cast<double>(d["clip_norm"]);
  return c;
}

TrainerOptions trainer_options(const nb::dict& d) {
  TrainerOptions o;
  o.method = nb::cast<std::string>(d["method"]);
  o.pipelines = nb::cast<int>(d["pipelines"]);
  o.stages = nb::cast<int>(d["stages"]);
  if (!d["plan"].is_none()) o.plan = nb::cast<Schedule>(d["plan"]);
  o.chunks = nb::cast<int>(d["chunks"]);
  o.pairs = nb::cast<int>(d["pairs"]);
  o.concat = nb::cast<std::string>(d["concat"]);
  o.with_recompute = nb::cast<bool>(d["with_recompute"]);
  o.runtime_rule = nb::cast<bool>(d["runtime_rule"]);
  o.sync = parse_sync_place(nb::cast<std::string>(d["sync"]));
  o.replicas = nb::cast<std::vector<int>>(d["replicas"]);
  o.micro_batches = nb::cast<int>(d["micro_batches"]);
  o.batch_size = nb::cast<std::int64_t>(d["batch_size"]);
  o.first_block = nb::cast<std::vector<int>>(d["first_block"]);
  o.seed = nb::cast<std::uint64_t>(d["seed"]);
  o.threads = nb::cast<int>(d["threads"]);
  o.device = nb::cast<std::string>(d["device"]);
  const std::vector<std::string> known = device_names();
  if (std::find(known.begin(), known.end(), o.device) == known.end())
    fail(Code::Unsupported, "training on '{}' is to come; workers of this build compute on 'cpu'",
         o.device.substr(0, 60));
  o.memory_limit = nb::cast<std::int64_t>(d["memory_limit"]);
  o.kernels = env().kernels;
  if (!d["averaging"].is_none()) o.averaging = averaging_of(nb::cast<nb::dict>(d["averaging"]));
  const auto injected = nb::cast<nb::dict>(d["stragglers"]);
  o.stragglers.hetero = nb::cast<double>(injected["hetero"]);
  o.stragglers.seed = nb::cast<std::uint64_t>(injected["seed"]);
  for (const nb::handle slow : nb::cast<nb::list>(injected["slow"]))
    o.stragglers.slow.push_back(slowdown_of(nb::cast<nb::dict>(slow)));
  return o;
}

}  // namespace hetu
