// What workers and the coordinator say to each other: one message per frame, little-endian, every
// length and count checked before anything is allocated. Read by coordinator.h and client_state.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "net/wire/bytes.h"
#include "ps/coordinator/group_client.h"

namespace hetu::ps {

inline constexpr std::size_t kLongestMessage = 1 << 17;  ///< bytes of a frame
inline constexpr int kMostPipelines = 4096;
inline constexpr int kMostSeats = 1 << 16;  ///< stages x pipelines

// From a worker.

/// The first message of a connection: who speaks, and what its job agrees upon.
struct Hello {
  ClientOptions options;
};
struct BeginRun {
  RunStart run;
};
struct Ask {
  std::int64_t update = 0;
};
/// The run is to end early.
struct StopSoon {};
/// A sign of life; the coordinator answers with the same.
struct Heartbeat {};
/// This worker has come to a point where all workers meet.
struct Arrive {
  bool ok = true;
  bool flag = false;
};
/// The worker has ended in order.
struct Leave {};

// From the coordinator.

/// Hello was accepted.
struct Welcome {};
/// Leave was heard: what its worker says from now on, on whatever line, comes after it.
struct Left {};
/// The job cannot go on, or this worker cannot take part.
struct Refusal {
  Code code = Code::Comm;
  std::string text;
};
/// Where the copies of a stage are reached, by pipeline.
struct Endpoints {
  std::vector<std::string> by_pipeline;
};

using FromWorker = std::variant<Hello, BeginRun, Ask, Heartbeat, Leave, Arrive, StopSoon>;
using FromCoordinator =
    std::variant<Welcome, Answer, Heartbeat, Refusal, Lost, Endpoints, Rendezvous, Left>;

/// What all workers of a job must give alike (policy, log, failure), as bytes to compare.
Bytes agreed_part(const ClientOptions& options);

/// One message as a frame. Texts are cut to 4096 bytes.
Bytes encode(const FromWorker& message);
Bytes encode(const FromCoordinator& message);

/// The message in a frame. Throws Comm, naming what is wrong with it: unknown kind, another
/// version, too short, too long, a count or a value out of its range.
FromWorker decode_from_worker(const std::byte* data, std::size_t bytes);
FromCoordinator decode_from_coordinator(const std::byte* data, std::size_t bytes);

}  // namespace hetu::ps
