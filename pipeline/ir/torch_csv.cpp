// PyTorch matches the messages between two workers by their order, without tags. A row may
// therefore receive messages only in the order in which their sender sends them. If worker 0 sends
// F0 and then F1, and worker 1 receives F1 and then F0, the receive of F0 moves before that of F1.
// TorchRow does this with a queue of expected messages per sender: at a receive it writes all
// receives of the queue up to that one.
#include "pipeline/ir/torch_csv.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pipeline/ir/plan_rows.h"
#include "pipeline/ir/run_length.h"

namespace hetu {
namespace {

using Key = std::pair<int, int>;  // stage, micro-batch

bool is_dropped(Kind kind) {
  return kind == Kind::Update || kind == Kind::ReduceGrad || kind == Kind::ReduceScalars;
}

// Throws if PyTorch's runtime can't execute the plan.
void check(const Schedule& s, const std::vector<std::vector<Instr>>& rows) {
  const char* what = "--format torch";
  require(s.steps == 1 && !s.half_micros,
          "{}: PyTorch's runtime executes one step of whole micro-batches", what);
  for (const Placement& p : s.placements)
    require(p.replica == 0,
            "{}: '{}' has several copies of a stage in a pipeline, but PyTorch's runtime supports "
            "one",
            what, s.method);
  bool messages = s.workers.size() == 1;
  for (const auto& row : rows) {
    for (const Instr& i : row) {
      const bool known = (is_compute(i.kind) && i.kind != Kind::Recompute) || is_send(i.kind) ||
                         is_recv(i.kind) || is_dropped(i.kind);
      require(known, "{}: PyTorch's runtime has no action such as {}", what, to_string(i));
      messages |= is_send(i.kind);
    }
  }
  require(messages, "{}: the plan has no messages; add --lowered", what);
}

// A writer of one row as cells. Receives stand in the order in which their messages are sent.
class TorchRow {
 public:
  explicit TorchRow(const std::vector<Instr>& row) : row_(row) {
    for (const Instr& i : row)
      if (i.kind == Kind::Backward || i.kind == Kind::WeightGrad) ++backwards_[i.stage];
  }

  // Returns the cells of the row. `coming` holds this row's receives by sender, in the order of the
  // sends. `sender` maps a receive to its sending worker.
  template <typename Sender>
  std::string text(std::map<int, std::deque<Instr>> coming, const Sender& sender) {
    for (std::size_t k = 0; k < row_.size(); ++k) {
      const Instr& i = row_[k];
      if (is_dropped(i.kind)) continue;
      // sends go before reductions because other workers wait for them
      if (!is_send(i.kind)) reduce();
      if (is_recv(i.kind)) {
        take_until(i, coming[sender(i)]);
        continue;
      }
      const bool pair = i.with_next && k + 1 < row_.size();
      add(to_cell(i, pair ? &row_[k + 1] : nullptr));
      after(i);
      if (pair) after(row_[++k]);
    }
    reduce();
    for (const auto& [kind, stage, micro] : sends_)
      add(fmt::format("{}WAIT_{}{}", stage, kind_name(kind), micro));
    return text_;
  }

 private:
  void add(const std::string& cell) { text_ += (text_.empty() ? "" : ",") + cell; }

  void take_until(const Instr& receive, std::deque<Instr>& coming) {
    // already written at an earlier place
    if (std::find(coming.begin(), coming.end(), receive) == coming.end()) return;
    for (bool found = false; !found; coming.pop_front()) {
      found = coming.front() == receive;
      add(to_string(coming.front()));
    }
  }

  void reduce() {
    for (const int stage : std::exchange(reduced_, {}))
      add(fmt::format("{0}REDUCE_GRAD,{0}WAIT_REDUCE_GRAD", stage));
  }

  void after(const Instr& i) {
    if (is_send(i.kind)) sends_.insert({i.kind, i.stage, i.micro});
    if ((i.kind == Kind::Backward || i.kind == Kind::InputGrad) &&
        sends_.erase({Kind::SendForward, i.stage, i.micro}) > 0)
      add(fmt::format("{}WAIT_SEND_F{}", i.stage, i.micro));
    if ((i.kind == Kind::Backward || i.kind == Kind::WeightGrad) && --backwards_[i.stage] == 0)
      reduced_.push_back(i.stage);
  }

  const std::vector<Instr>& row_;
  std::map<int, int> backwards_;                // by stage: weight gradients not yet computed
  std::vector<int> reduced_;                    // stages whose gradients are complete
  std::set<std::tuple<Kind, int, int>> sends_;  // not waited for yet
  std::string text_;
};

}  // namespace

std::string to_torch_csv(const Schedule& lowered) {
  std::vector<std::vector<Instr>> rows;
  for (const Program& p : lowered.workers) rows.push_back(unroll(p));
  check(lowered, rows);
  const auto worker_of = [&](int stage) { return lowered.placements.at(stage).workers.at(0); };
  const auto sender = [&](const Instr& receive) {
    return worker_of(receive.stage + (receive.kind == Kind::RecvForward ? -1 : 1));
  };
  std::vector<std::map<int, std::deque<Instr>>> coming(rows.size());  // by receiver, by sender
  for (std::size_t w = 0; w < rows.size(); ++w) {
    for (Instr i : rows[w]) {
      if (!is_send(i.kind)) continue;
      const bool forward = i.kind == Kind::SendForward;
      i.kind = forward ? Kind::RecvForward : Kind::RecvBackward;
      i.stage += forward ? 1 : -1;
      coming[worker_of(i.stage)][static_cast<int>(w)].push_back(i);
    }
  }
  std::string text;
  for (std::size_t w = 0; w < rows.size(); ++w)
    text += TorchRow(rows[w]).text(coming[w], sender) + "\n";
  return text;
}

std::string with_present_names(std::string text) {
  const auto is_digit = [&](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  const auto is_old_whole = [&](std::size_t at) {
    return text.compare(at, 2, "BW") == 0 && at > 0 && is_digit(at - 1) && is_digit(at + 2);
  };
  bool old = false;
  for (std::size_t at = text.find("BW"); at != std::string::npos && !old;
       at = text.find("BW", at + 1))
    old = is_old_whole(at);
  if (!old) return text;
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (is_old_whole(at)) {
      out += 'B';
      ++at;
    } else {
      out += text[at] == 'B' && at > 0 && is_digit(at - 1) && is_digit(at + 1) ? 'I' : text[at];
    }
  }
  return out;
}

void split_old_backwards(Schedule& schedule) {
  std::set<Key> backwards, weights;
  for (const Program& p : schedule.workers) {
    for (const Instr& i : p.prologue) {
      if (i.kind == Kind::InputGrad) return;
      if (i.kind == Kind::Backward) backwards.insert({i.stage, i.micro});
      if (i.kind == Kind::WeightGrad) weights.insert({i.stage, i.micro});
    }
  }
  if (weights.empty() || weights != backwards) return;
  for (Program& p : schedule.workers)
    for (Instr& i : p.prologue)
      if (i.kind == Kind::Backward) i.kind = Kind::InputGrad;
}

}  // namespace hetu
