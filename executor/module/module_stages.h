// Stages whose functions belong to an owner outside Hetu. Instructions of the loop become
// callbacks, messages are bytes that the owner gives and takes, and gradients are in the owner's
// memory. Used by ModuleJob.
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

#include "executor/compile/sum_layout.h"
#include "executor/stage/stages.h"
#include "net/transport/collective.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A part of a stage's gradient in the owner's memory. Part 0 is summed over the copies of the
/// stage, and part 1 + t over the two stages of tied pair t. Every copy has the same parts, with
/// the same types and lengths.
struct ModuleGradient {
  int part = 0;
  DType dtype = DType::Float32;
  void* data = nullptr;
  std::int64_t count = 0;
  std::vector<OwnedElements> owners = {};  ///< as in Bucket
  /// If sums are in a tree: the memory of each slot of a SumTree, of which the first is `data`.
  std::vector<void*> slots = {};
};

/// The stages of one worker, as the loop calls them.
class ModuleStages final : public Stages {
 public:
  /// Runs F, B, I, W or R of a placement of this worker. Messages that it sends must be given (see
  /// give) before it returns.
  using Compute = std::function<void(const Instr& instr)>;
  /// The memory of a message, and the object that keeps it allocated.
  struct Message {
    const void* data = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<void> owner;
  };
  /// A SEND or RECV, identified by kind, placement, part and micro-batch.
  using Key = std::tuple<Kind, int, int, int>;

  /// `slots` is the number of messages of one edge that may be in transit. `group` has the workers
  /// over which scalars are summed. The transport must outlive the object.
  ModuleStages(Compute compute, int slots, comm::Transport& transport, comm::Group group);

  /// Sets the length of a RECV's message, from this call on.
  void expect(const Key& recv, std::size_t bytes) { expected_[recv] = bytes; }
  /// Sets the message of a SEND that follows the running instruction.
  void give(const Key& send, Message message);
  /// Returns the message that a RECV has brought. Call it once per message.
  Message take(const Key& recv);
  /// Releases messages that were sent, and messages that a failed run has left.
  void clear();

  /// Sets the gradient of a placement of `model_stage`. Throws Unsupported if this worker holds
  /// several copies of a stage with a tied parameter.
  void set_gradients(int placement, int model_stage, std::vector<ModuleGradient> gradients);

  /// Adds gradients in the order of a tree over these copies from here on. `tied` has the stages of
  /// each tied pair.
  void add_by_tree(SumLayout layout, std::vector<StagePair> tied);

  /// Returns the numbers of a step. Each is set by one worker and 0 on all others; REDUCE_SCALARS
  /// replaces them by the sums.
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
  // A gradient part that several placements of this worker hold: replicas of a stage, or a tied
  // pair.
  struct Holder {
    int model_stage = 0;
    int placement = 0;
    ModuleGradient gradient;
  };
  struct Shared {
    std::vector<Holder> holders;  // in the order in which they are added
    std::size_t lead = 0;  // index of the holder that is summed with other workers (reduction.h)
    bool joined = false;
  };

  /// The terms of a gradient's sum on all workers, with the data of those on this worker.
  struct Terms {
    std::vector<Bucket::Term> terms;
    std::vector<int> order;
  };

  Terms terms_of(int placement, const ModuleGradient& gradient) const;
  const ModuleGradient& held_at(int placement, const ModuleGradient& gradient) const;
  void join_terms(const Shared& shared);
  void find_shared();
  void join(Shared& shared);
  void spread();

  Compute compute_;
  std::size_t slots_;
  comm::Transport& transport_;
  const comm::Group group_;
  std::map<std::tuple<Kind, int, int>, std::deque<Sent>> sent_;  // by edge, oldest first
  std::map<Key, Message> incoming_;
  std::map<Key, std::size_t> expected_;
  std::map<int, std::pair<int, std::vector<ModuleGradient>>> gradients_;  // by placement
  std::vector<Shared> shared_;
  std::vector<double> scalars_;
  SumLayout layout_;  // without copies: gradients are not added by a tree
  std::vector<StagePair> tied_;
};

}  // namespace hetu
