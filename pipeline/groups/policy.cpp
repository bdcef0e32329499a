#include "pipeline/groups/policy.h"

#include "base/error.h"
#include "pipeline/groups/board.h"
#include "pipeline/groups/rule.h"

namespace hetu::groups {

// The policy is a board and the rule of its method. Each call first updates the board, then lets
// the rule close groups.
class Policy::Impl {
 public:
  explicit Impl(const Options& options) : board(with_defaults(options)) {
    switch (options.method) {
      case Method::PartialReduce:
        rule = partial_reduce(board);
        break;
      case Method::AdPsgd:
        rule = ad_psgd(board);
        break;
      case Method::AdPsgdLockstep:
        rule = ad_psgd_lockstep(board);
        break;
    }
  }

  Board board;
  std::unique_ptr<Rule> rule;
};

const char* reason_name(Reason reason) {
  switch (reason) {
    case Reason::All:
      return "all";
    case Reason::Wide:
      return "wide";
    case Reason::Alone:
      return "alone";
    case Reason::Joins:
      return "joins";
    case Reason::Frees:
      return "frees";
    case Reason::Last:
      return "last";
    case Reason::Drawn:
      return "drawn";
  }
  return "?";
}

int updates_before_answer(int stages, int stage) { return stages - stage + 1; }

std::int64_t known_stop(const Options& options, std::int64_t updates) {
  const bool equal = options.method == Method::AdPsgdLockstep ||
                     (options.method == Method::PartialReduce && options.sync_period == 1);
  return equal || updates <= updates_before_answer(options.stages, 0) ? updates : kRunsOn;
}

Policy::Policy(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
Policy::~Policy() = default;
Policy::Policy(Policy&&) noexcept = default;
Policy& Policy::operator=(Policy&&) noexcept = default;

const Options& Policy::options() const { return impl_->board.options(); }

void Policy::begin_run(const std::vector<std::int64_t>& done, std::int64_t updates) {
  impl_->board.begin_run(done, updates);
  impl_->rule->begin_run();
}

void Policy::begin_run(std::int64_t done, std::int64_t updates) {
  begin_run(std::vector<std::int64_t>(options().pipelines, done), updates);
}

void Policy::arrive(const Request& request, std::int64_t now_us) {
  impl_->board.arrive(request, now_us);
  impl_->rule->on_arrival(request.stage, request.pipeline);
}

void Policy::tick(std::int64_t now_us) {
  impl_->board.pass_time(now_us);
  impl_->rule->on_time();
}

void Policy::remove(int pipeline, std::int64_t now_us) {
  require(pipeline >= 0 && pipeline < options().pipelines,
          "pipeline {} can't be removed: the pipelines are 0…{}", pipeline,
          options().pipelines - 1);
  impl_->board.pass_time(now_us);
  if (!impl_->board.is_alive(pipeline)) return;
  impl_->board.remove(pipeline);
  impl_->rule->on_death(pipeline);
}

void Policy::stop_soon() { impl_->board.stop_soon(); }

std::optional<std::int64_t> Policy::wakes_at_us() const { return impl_->rule->wakes_at_us(); }

std::vector<Decision> Policy::take() { return impl_->board.take(); }

bool Policy::is_pending(int stage, int pipeline) const {
  return impl_->board.state(stage, pipeline).open;
}

}  // namespace hetu::groups
