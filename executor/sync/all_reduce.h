// Gradients summed over all copies of a stage, before every update: REDUCE_GRAD; and K-FAC's
// factors, before they are inverted: SYNC_A, SYNC_B; and its inverses, each a sum of one copy's and
// zeros: GATHER.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "executor/direct/direct_links.h"
#include "executor/stage/stages.h"
#include "executor/sync/row_sum.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/collective.h"

namespace hetu {

/// Sums of buckets run beside compute from the moment a bucket is final or, where the plan says so,
/// from the REDUCE_GRAD on.
class AllReduce final : public WeightSync {
 public:
  struct How {
    /// Of each bucket the first element alone is summed, in a run whose results mean nothing.
    bool one_element = false;
    /// How gradients travel, see Reducer::start_sum; factors, inverses and tables by rows always as
    /// they are.
    DType wire = DType::Float32;
    /// What sums buckets in a device's memory, whole and in float32; null: the reducer.
    DirectLinks* direct = nullptr;
  };
  /// All must outlive it.
  AllReduce(Stages& stages, comm::Transport& transport, comm::Reducer& reducer, const How& how)
      : stages_(stages), transport_(transport), reducer_(reducer), how_(how) {}
  AllReduce(Stages& stages, comm::Transport& transport, comm::Reducer& reducer)
      : AllReduce(stages, transport, reducer, How()) {}

  bool carries_out(Kind kind) const override {
    return kind == Kind::ReduceGrad || is_factor_exchange(kind);
  }
  void follow(const Row& row) override;
  void forget(const Row& row) override;
  void begin(const Row& row, int step, Note note) override;
  void after_backward(const Action& at, int stage, int bucket) override;
  void reach(const Action& action, int step, std::int64_t now_ns) override;
  void wait(int stage) override;
  void wait_for_factors() override;
  void end_of_run() override { wait(kAllStages); }

 private:
  // Of a bucket: the whole of it, or its rows; or where it lies.
  struct Sum {
    std::shared_ptr<comm::Sum> whole = nullptr;
    std::shared_ptr<RowSum> rows = nullptr;
    std::optional<Event> direct = {};
    bool is_started() const { return whole || rows || direct; }
  };

  // The sums of one REDUCE_GRAD of a row, time after time.
  struct Reduction {
    const Action* action;
    std::vector<int> buckets;
    int times = 0;  // reached in this run
    // Of the next time: per bucket, none before its start, which may come before the loop does.
    std::vector<Sum> sums;
    std::int64_t start_ns = 0;
  };
  struct Started {  // reached and not awaited
    Instr instr;
    int step;
    std::vector<Sum> sums;
    std::int64_t start_ns;
  };

  using Reductions = std::vector<Reduction>;  // in row order

  static Reduction* find(Reductions& reductions, const Instr& instr);
  void start_sum(Reduction& reduction, std::size_t k);
  std::int64_t finish(const Sum& sum, comm::What what);
  void finish(const Started& started);

  Stages& stages_;
  comm::Transport& transport_;
  comm::Reducer& reducer_;
  const How how_;
  Note note_;
  int step_ = 0;  // the run's first
  std::map<const Row*, Reductions> by_row_;
  Reductions* reductions_ = nullptr;  // of the row that runs
  std::vector<Started> started_;
  std::vector<std::shared_ptr<RowSum>> sending_;  // finished here, and not at every other member
};

}  // namespace hetu
