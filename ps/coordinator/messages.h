// Messages between workers and the coordinator: one little-endian message per frame. Decoding
// checks every length and count before it allocates anything. Read by coordinator.h and
// client_state.h.
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

inline constexpr std::size_t kLongestMessage = 1 << 17;  ///< most bytes of a frame
inline constexpr int kMostPipelines = 4096;
inline constexpr int kMostSlots = 1 << 16;  ///< most stages x pipelines

// Messages from a worker.

/// The first message of a connection: the client's identity, and the options that its job shares.
struct Hello {
  ClientOptions options;
};
/// Announces a run.
struct BeginRun {
  RunStart run;
};
/// Requests a group for the weights after update `update`.
struct Ask {
  std::int64_t update = 0;
};
/// Asks to end the run early.
struct StopSoon {};
/// A heartbeat. The coordinator answers with the same message.
struct Heartbeat {};
/// Reports that this worker has arrived at a rendezvous.
struct Arrive {
  bool ok = true;
  bool flag = false;
};
/// Reports that the worker has ended in order.
struct Leave {};

// Messages from the coordinator.

/// Accepts a Hello.
struct Welcome {};
/// Confirms Leave. Messages that the worker sends from then on, over any connection, are processed
/// after it.
struct Left {};
/// Reports that the job can't continue, or that this worker can't take part.
struct Refusal {
  Code code = Code::Comm;
  std::string text;
};
/// The endpoints of a stage's copies, by pipeline.
struct Endpoints {
  std::vector<std::string> by_pipeline;
};

using FromWorker = std::variant<Hello, BeginRun, Ask, Heartbeat, Leave, Arrive, StopSoon>;
using FromCoordinator =
    std::variant<Welcome, Answer, Heartbeat, Refusal, Lost, Endpoints, Rendezvous, Left>;

/// Encodes the options that all workers of a job must share (policy, log, failure mode), to compare
/// them.
Bytes agreed_part(const ClientOptions& options);

/// Encodes a message as a frame. Texts are cut to 4096 bytes.
Bytes encode(const FromWorker& message);
Bytes encode(const FromCoordinator& message);

/// Decodes a frame. Throws Comm, with the reason: unknown kind, another version, too short, too
/// long, or a count or value out of range.
FromWorker decode_from_worker(const std::byte* data, std::size_t bytes);
FromCoordinator decode_from_coordinator(const std::byte* data, std::size_t bytes);

}  // namespace hetu::ps
