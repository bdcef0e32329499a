// Stages whose functions are their owner's: the loop's instructions become calls, messages are
// bytes that the owner gives and takes, gradients lie in the owner's memory. Made by ModuleJob.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "executor/stage/stages.h"
#include "net/transport/collective.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A part of a stage's gradient, in the owner's memory: summed as one over the copies of the stage,
/// or, part 1 + t, over the two stages of tied pair t. As many and alike on every copy.
struct ModuleGradient {
  int part = 0;
  DType dtype = DType::Float32;
  void* data = nullptr;
  std::int64_t count = 0;
  std::vector<OwnedElements> owners = {};  ///< as in Bucket
};

class ModuleStages final : public Stages {
 public:
  /// F, B, I, W or R of a placement of this worker. What it sends must be given before it returns.
  using Compute = std::function<void(const Instr& instr)>;
  /// Memory that a message lies in; what keeps it there.
  struct Message {
    const void* data = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<void> owner;
  };
  /// A SEND or RECV, named by kind, placement, part and micro-batch.
  using Key = std::tuple<Kind, int, int, int>;

  /// `slots`: messages of one edge that may be on their way. `crew`: whom scalars are summed with.
  /// The transport must outlive it.
  ModuleStages(Compute compute, int slots, comm::Transport& transport, comm::Group crew);

  /// How long the message of a RECV is, from here on.
  void expect(const Key& recv, std::size_t bytes) { expected_[recv] = bytes; }
  /// What a SEND that follows the instruction which runs will ship.
  void give(const Key& send, Message message);
  /// What a RECV has brought, once.
  Message take(const Key& recv);
  /// Messages that were sent are let go of, and what a run that failed has left.
  void clear();

  /// The gradient of a placement, of `model_stage`. Throws Unsupported where a tied stage stands on
  /// this worker more than once.
  void set_gradients(int placement, int model_stage, std::vector<ModuleGradient> gradients);

  /// Numbers of a step, of which each is one worker's and 0 on all others; after REDUCE_SCALARS
  /// everyone's.
  std::vector<double>& scalars() { return scalars_; }

  Event run(const Instr& instr, int step) override;
  DeviceSpan newest_weights(int stage) override;
  std::vector<DeviceSpan> persistent(int /*stage*/, bool /*with_buffers*/) override { return {}; }
  Buffer out_buffer(const Instr& send) override;
  std::optional<Buffer> in_buffer(const Instr& recv) override;
  void overwrites(const Instr& compute, std::vector<const void*>& addresses) override;
  std::vector<int> buckets(const Instr& reduce) override;
  Bucket bucket(int stage, int bucket) override;
  void begin_run(int first_step, bool asks_to_stop) override;

 private:
  struct Sent {
    int micro = 0;
    Message message;
  };
  // One that several placements of this worker hold: replicas of a stage, or a tied pair.
  struct Holder {
    int model_stage = 0;
    int placement = 0;
    ModuleGradient gradient;
  };
  struct Shared {
    std::vector<Holder> holders;  // in the order in which they are added
    std::size_t lead = 0;         // the one that is summed with other workers (reduction.h)
    bool joined = false;
  };

  void find_shared();
  void join(Shared& shared);
  void spread();

  Compute compute_;
  std::size_t slots_;
  comm::Transport& transport_;
  const comm::Group crew_;
  std::map<std::tuple<Kind, int, int>, std::deque<Sent>> sent_;  // by edge, oldest first
  std::map<Key, Message> incoming_;
  std::map<Key, std::size_t> expected_;
  std::map<int, std::pair<int, std::vector<ModuleGradient>>> gradients_;  // by placement
  std::vector<Shared> shared_;
  std::vector<double> scalars_;
};

}  // namespace hetu
