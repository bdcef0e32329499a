#include "ps/coordinator/messages.h"

namespace hetu::ps {

namespace {

constexpr std::uint8_t kVersion = 4;
constexpr std::size_t kLongestEndpoint = 120;
constexpr int kMostWorkers = 1 << 20;

// First byte of a frame after the version. The two directions share no number.
enum Kind : std::uint8_t {
  kHello = 1,
  kBegin,
  kAsk,
  kHeartbeat,
  kLeave,
  kWelcome,
  kAnswer,
  kRefusal,
  kLost,
  kArrive,
  kEndpoints,
  kRendezvous,
  kStopSoon,
  kLeft
};

class Writer : public ByteWriter {
 public:
  explicit Writer(Kind kind) : ByteWriter(kVersion, kind) {}
};
using Reader = ByteReader;

void write_policy(Writer& to, const groups::Options& o) {
  to.number(static_cast<std::uint8_t>(o.method));
  for (const int value :
       {o.stages, o.pipelines, o.sync_period, o.min_group, o.max_group, o.pair_above}) {
    to.number(value);
  }
  for (const double value :
       {o.wait, o.horizon, o.soft, o.hard, o.patience, o.smoothing, o.late_share, o.late_spread}) {
    to.number(value);
  }
  to.number(static_cast<std::uint8_t>(o.overlapped));
  to.number(static_cast<std::uint8_t>(o.flushes));
  to.number(o.late_us);
  to.number(o.seed);
  to.number(static_cast<std::uint8_t>(o.weights));
  to.number(o.stale_share);
}

groups::Options read_policy(Reader& from) {
  groups::Options o;
  const auto last = static_cast<std::uint8_t>(groups::Method::AdPsgdLockstep);
  o.method = static_cast<groups::Method>(from.between<std::uint8_t>(0, last, "method"));
  o.stages = from.between(1, kMostSlots, "number of stages");
  o.pipelines = from.between(1, kMostPipelines, "number of pipelines");
  for (int* value : {&o.sync_period, &o.min_group, &o.max_group, &o.pair_above}) {
    *value = from.number<int>();
  }
  for (double* value : {&o.wait, &o.horizon, &o.soft, &o.hard, &o.patience, &o.smoothing,
                        &o.late_share, &o.late_spread}) {
    *value = from.number<double>();
  }
  o.overlapped = from.between<std::uint8_t>(0, 1, "overlap") == 1;
  o.flushes = from.between<std::uint8_t>(0, 1, "flush") == 1;
  o.late_us = from.number<std::int64_t>();
  o.seed = from.number<std::uint64_t>();
  const auto last_weights = static_cast<std::uint8_t>(groups::Weights::Staleness);
  o.weights = static_cast<groups::Weights>(from.between<std::uint8_t>(0, last_weights, "weights"));
  o.stale_share = from.number<double>();
  if (o.stages * o.pipelines > kMostSlots) {
    fail(Code::Comm, "a message with {} x {} workers; at most {} are allowed", o.stages,
         o.pipelines, kMostSlots);
  }
  return o;
}
// A field that is added to the policy must be sent, too.
static_assert(sizeof(groups::Options) == 136);

void write_agreed(Writer& to, const ClientOptions& options) {
  write_policy(to, options.policy);
  to.text(options.group_log);
  to.number(static_cast<std::uint8_t>(options.on_failure_shrink));
}

Hello read_hello(Reader& from) {
  Hello hello;
  ClientOptions& o = hello.options;
  o.policy = read_policy(from);
  o.group_log = from.text("group log");
  o.on_failure_shrink = from.between<std::uint8_t>(0, 1, "answer to a failure") == 1;
  o.worker = from.between(0, kMostWorkers, "worker");
  o.pipeline = from.between(0, o.policy.pipelines - 1, "pipeline");
  o.stage = from.between(0, o.policy.stages - 1, "stage");
  o.endpoint = from.text("endpoint");
  if (o.endpoint.size() > kLongestEndpoint) {
    fail(Code::Comm, "a message with an endpoint of {} characters; at most {} are allowed",
         o.endpoint.size(), kLongestEndpoint);
  }
  return hello;
}

Answer read_answer(Reader& from) {
  Answer answer;
  const auto members = from.between(1, kMostPipelines, "group's size");
  for (int i = 0; i < members; ++i) {
    answer.members.push_back(from.between(0, kMostPipelines - 1, "member"));
    answer.updates.push_back(from.number<std::int64_t>());
  }
  answer.serial = from.number<std::int64_t>();
  answer.stop_after = from.number<std::int64_t>();
  answer.initiator = from.between(-1, kMostPipelines - 1, "initiator");
  if (from.flag()) {
    for (int i = 0; i < members; ++i) answer.weights.push_back(from.between(0.0, 1.0, "weight"));
  }
  return answer;
}

Endpoints read_endpoints(Reader& from) {
  Endpoints endpoints;
  const int count = from.between(1, kMostPipelines, "number of endpoints");
  for (int i = 0; i < count; ++i) endpoints.by_pipeline.push_back(from.text("endpoint"));
  return endpoints;
}

Rendezvous read_rendezvous(Reader& from) {
  Rendezvous rendezvous;
  const int count = from.between(1, kMostPipelines, "size of a rendezvous");
  for (int i = 0; i < count; ++i) {
    rendezvous.members.push_back(from.between(0, kMostPipelines - 1, "member"));
  }
  rendezvous.all_ok = from.flag();
  rendezvous.any_flag = from.flag();
  return rendezvous;
}

Lost read_lost(Reader& from) {
  Lost lost;
  lost.pipeline = from.between(0, kMostPipelines - 1, "pipeline");
  lost.updates = from.number<std::int64_t>();
  lost.averaged = from.number<std::int64_t>();
  lost.reason = from.text("reason");
  return lost;
}

struct Encode {
  Bytes operator()(const Hello& m) const {
    Writer to(kHello);
    write_agreed(to, m.options);
    to.number(m.options.worker);
    to.number(m.options.pipeline);
    to.number(m.options.stage);
    to.text(m.options.endpoint);
    return to.take();
  }
  Bytes operator()(const BeginRun& m) const {
    Writer to(kBegin);
    to.number(m.run.done);
    to.number(m.run.updates);
    to.number(m.run.step);
    return to.take();
  }
  Bytes operator()(const Ask& m) const {
    Writer to(kAsk);
    to.number(m.update);
    return to.take();
  }
  Bytes operator()(const StopSoon&) const { return Writer(kStopSoon).take(); }
  Bytes operator()(const Heartbeat&) const { return Writer(kHeartbeat).take(); }
  Bytes operator()(const Leave&) const { return Writer(kLeave).take(); }
  Bytes operator()(const Welcome&) const { return Writer(kWelcome).take(); }
  Bytes operator()(const Left&) const { return Writer(kLeft).take(); }
  Bytes operator()(const Answer& m) const {
    Writer to(kAnswer);
    to.number(static_cast<int>(m.members.size()));
    for (std::size_t i = 0; i < m.members.size(); ++i) {
      to.number(m.members[i]);
      to.number(m.updates[i]);
    }
    to.number(m.serial);
    to.number(m.stop_after);
    to.number(m.initiator);
    to.number(static_cast<std::uint8_t>(m.weights.empty() ? 0 : 1));
    for (const double weight : m.weights) to.number(weight);
    return to.take();
  }
  Bytes operator()(const Refusal& m) const {
    Writer to(kRefusal);
    to.number(static_cast<std::uint8_t>(m.code));
    to.text(m.text);
    return to.take();
  }
  Bytes operator()(const Arrive& m) const {
    Writer to(kArrive);
    to.number(static_cast<std::uint8_t>(m.ok));
    to.number(static_cast<std::uint8_t>(m.flag));
    return to.take();
  }
  Bytes operator()(const Endpoints& m) const {
    Writer to(kEndpoints);
    to.number(static_cast<int>(m.by_pipeline.size()));
    for (const std::string& endpoint : m.by_pipeline) to.text(endpoint);
    return to.take();
  }
  Bytes operator()(const Rendezvous& m) const {
    Writer to(kRendezvous);
    to.number(static_cast<int>(m.members.size()));
    for (const int member : m.members) to.number(member);
    to.number(static_cast<std::uint8_t>(m.all_ok));
    to.number(static_cast<std::uint8_t>(m.any_flag));
    return to.take();
  }
  Bytes operator()(const Lost& m) const {
    Writer to(kLost);
    to.number(m.pipeline);
    to.number(m.updates);
    to.number(m.averaged);
    to.text(m.reason);
    return to.take();
  }
};

}  // namespace

Bytes agreed_part(const ClientOptions& options) {
  Writer to(kHello);
  write_agreed(to, options);
  return to.take();
}

Bytes encode(const FromWorker& message) { return std::visit(Encode{}, message); }
Bytes encode(const FromCoordinator& message) { return std::visit(Encode{}, message); }

FromWorker decode_from_worker(const std::byte* data, std::size_t bytes) {
  Reader from(data, bytes);
  FromWorker message;
  switch (const Kind kind = static_cast<Kind>(from.head(kVersion))) {
    case kHello:
      message = read_hello(from);
      break;
    case kBegin: {
      RunStart run;
      for (std::int64_t* field : {&run.done, &run.updates, &run.step})
        *field = from.number<std::int64_t>();
      message = BeginRun{run};
      break;
    }
    case kAsk:
      message = Ask{from.number<std::int64_t>()};
      break;
    case kHeartbeat:
      message = Heartbeat{};
      break;
    case kLeave:
      message = Leave{};
      break;
    case kStopSoon:
      message = StopSoon{};
      break;
    case kArrive: {
      const bool ok = from.flag();
      message = Arrive{ok, from.flag()};
      break;
    }
    default:
      fail(Code::Comm, "a message of kind {}, which no worker sends", static_cast<int>(kind));
  }
  from.end();
  return message;
}

FromCoordinator decode_from_coordinator(const std::byte* data, std::size_t bytes) {
  Reader from(data, bytes);
  FromCoordinator message;
  switch (const Kind kind = static_cast<Kind>(from.head(kVersion))) {
    case kWelcome:
      message = Welcome{};
      break;
    case kAnswer:
      message = read_answer(from);
      break;
    case kHeartbeat:
      message = Heartbeat{};
      break;
    case kRefusal: {
      const auto last = static_cast<std::uint8_t>(Code::Internal);
      const auto code = static_cast<Code>(from.between<std::uint8_t>(0, last, "code"));
      message = Refusal{code, from.text("reason")};
      break;
    }
    case kEndpoints:
      message = read_endpoints(from);
      break;
    case kRendezvous:
      message = read_rendezvous(from);
      break;
    case kLost:
      message = read_lost(from);
      break;
    case kLeft:
      message = Left{};
      break;
    default:
      fail(Code::Comm, "a message of kind {}, which no coordinator sends", static_cast<int>(kind));
  }
  from.end();
  return message;
}

}  // namespace hetu::ps
