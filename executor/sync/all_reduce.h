// Sums over all copies of a stage: gradients before every update (REDUCE_GRAD), K-FAC's factors
// before they are inverted (SYNC_A, SYNC_B), and K-FAC's inverses (GATHER). A gathered inverse is
// the sum of one copy's inverse and zeros.
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

/// Sums buckets while compute goes on. A sum starts as soon as its bucket is final if the plan
/// permits it (Action::sums_follow), else at the REDUCE_GRAD.
class AllReduce final : public WeightSync {
 public:
  /// Settings of the sums.
  struct How {
    /// Sums only the first element of each bucket, for runs that measure time and whose results are
    /// meaningless. Has no effect with `direct`, nor on buckets whose slices have owners.
    bool one_element = false;
    /// Data type of gradients in messages, see Reducer::start_sum. Factors, inverses and tables
    /// stored by rows are always sent in their own type.
    DType wire = DType::Float32;
    /// Sums whole float32 buckets in the memory of devices; null: the reducer sums them.
    DirectLinks* direct = nullptr;
  };
  /// All arguments must outlive the object.
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
  void run_instruction(const Action& action, int step, std::int64_t now_ns) override;
  void wait(int stage) override;
  void wait_for_factors() override;
  void end_of_run() override { wait(kAllStages); }

 private:
  // The running sum of a bucket: of the whole bucket, of its rows, or in device memory.
  struct Sum {
    std::shared_ptr<comm::Sum> whole = nullptr;
    std::shared_ptr<RowSum> rows = nullptr;
    std::optional<Event> direct = {};
    bool is_started() const { return whole || rows || direct; }
  };

  // The sums of one instruction of a row (REDUCE_GRAD, SYNC_A, SYNC_B or GATHER), which run once
  // per repetition.
  struct Reduction {
    const Action* action;
    std::vector<int> buckets;
    int times = 0;  // times that this run has reached the instruction
    // Sums for the next time, by bucket. They may start before the loop reaches the instruction.
    std::vector<Sum> sums;
    std::int64_t start_ns = 0;
  };
  struct Started {  // a reduction that was reached and not yet awaited
    Instr instr;
    int step;
    std::vector<Sum> sums;
    std::int64_t start_ns;
  };

  using Reductions = std::vector<Reduction>;  // in row order

  static Reduction* find(Reductions& reductions, const Instr& instr);
  void start_sum(Reduction& reduction, std::size_t k);
  std::int64_t finish(const Sum& sum, comm::WaitPurpose what);
  void finish(const Started& started);

  Stages& stages_;
  comm::Transport& transport_;
  comm::Reducer& reducer_;
  const How how_;
  Note note_;
  int step_ = 0;  // first step of the run
  std::map<const Row*, Reductions> by_row_;
  Reductions* reductions_ = nullptr;  // of the current row
  std::vector<Started> started_;
  // Finished here, but not yet at every other member.
  std::vector<std::shared_ptr<RowSum>> sending_;
};

}  // namespace hetu
