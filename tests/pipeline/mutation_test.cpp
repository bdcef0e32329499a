// The verifier against corrupted plans, judged by an oracle that shares no code with it: strings,
// sets, and one instruction after the other.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/verify.h"

namespace hetu {
namespace {

using Rows = std::vector<std::vector<Instr>>;
using Cells = std::vector<std::vector<std::string>>;

Rows rows_of(const Schedule& s) {
  Rows rows;
  for (const Program& p : s.workers) rows.push_back(unroll(p));
  return rows;
}

Schedule with_rows(const Schedule& s, const Rows& rows) {
  Schedule out = s;
  for (std::size_t w = 0; w < rows.size(); ++w) out.workers[w] = {rows[w], {}, 0, 0, {}};
  return out;
}

Cells cells_of(const Rows& rows) {
  Cells cells(rows.size());
  for (std::size_t w = 0; w < rows.size(); ++w)
    for (const Instr& i : rows[w]) cells[w].push_back(to_string(i));
  return cells;
}

// One stage per worker, stage s on worker s. `slots` < 0: unbounded.
class Oracle {
 public:
  Oracle(const Rows& rows, int slots) : rows_(rows), slots_(slots), at_(rows.size(), 0) {
    for (const auto& row : rows)
      for (const Instr& i : row) lowered_ |= is_send(i.kind) || is_recv(i.kind);
  }

  bool runs() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < rows_.size(); ++w)
        while (at_[w] < rows_[w].size() && step(static_cast<int>(w))) moved = true;
    }
    for (std::size_t w = 0; w < rows_.size(); ++w)
      if (at_[w] < rows_[w].size() || backwards_after_update(w)) return false;
    return true;
  }

 private:
  const Instr* next(int w) const {
    return w >= 0 && w < static_cast<int>(rows_.size()) && at_[w] < rows_[w].size()
               ? &rows_[w][at_[w]]
               : nullptr;
  }

  bool did(const std::string& cell) const { return done_.count(cell) > 0; }
  bool did(int stage, const char* kind, int micro) const {
    return did(std::to_string(stage) + kind + std::to_string(micro));
  }

  bool backwards_after_update(std::size_t w) const {
    bool updated = false;
    for (const Instr& i : rows_[w]) {
      if (updated && i.kind == Kind::Backward) return true;
      updated |= i.kind == Kind::Update;
    }
    return false;
  }

  bool planned(int stage, const char* kind, int micro) const {
    const std::string cell = std::to_string(stage) + kind + std::to_string(micro);
    for (const auto& row : rows_)
      for (const Instr& i : row)
        if (to_string(i) == cell) return true;
    return false;
  }

  bool may(const Instr& i) const {
    const int last = static_cast<int>(rows_.size()) - 1, s = i.stage, m = i.micro;
    switch (i.kind) {
      case Kind::Forward:
        return s == 0 || (lowered_ ? did(s, "RECV_F", m) : did(s - 1, "F", m));
      case Kind::Recompute:
        return did(s, "F", m);
      case Kind::Backward:
        return did(s, "F", m) && (!planned(s, "R", m) || did(s, "R", m)) &&
               (s == last || (lowered_ ? did(s, "RECV_B", m) : did(s + 1, "B", m)));
      case Kind::SendForward:
        return did(s, "F", m);
      case Kind::SendBackward:
        return did(s, "B", m);
      default:
        return true;
    }
  }

  bool step(int w) {
    const Instr i = *next(w);
    if (!may(i)) return false;
    if (is_send(i.kind)) {
      const int to = i.kind == Kind::SendForward ? w + 1 : w - 1;
      const Instr wanted{i.kind == Kind::SendForward ? Kind::RecvForward : Kind::RecvBackward,
                         false, 0, to, i.micro};
      if (slots_ == 0) {
        if (next(to) == nullptr || !(*next(to) == wanted)) return false;
        finish(to);
      } else {
        auto& channel = channels_[{w, to}];
        if (slots_ > 0 && static_cast<int>(channel.size()) >= slots_) return false;
        channel.insert(to_string(wanted));
      }
    } else if (is_recv(i.kind)) {
      const int from = i.kind == Kind::RecvForward ? w - 1 : w + 1;
      if (slots_ == 0 || channels_[{from, w}].erase(to_string(i)) == 0) return false;
    }
    finish(w);
    return true;
  }

  void finish(int w) { done_.insert(to_string(rows_[w][at_[w]++])); }

  const Rows& rows_;
  const int slots_;
  std::vector<std::size_t> at_;
  std::set<std::string> done_;
  std::map<std::pair<int, int>, std::set<std::string>> channels_;
  bool lowered_ = false;
};

bool accepted(const Schedule& s, int slots) {
  try {
    verify(s, {.send_slots = slots});
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Plan) << e.what();
    EXPECT_NE(std::string(e.what()).find("\n  "), std::string::npos) << e.what();
    return false;
  }
}

class Mutations : public testing::Test {
 protected:
  Schedule random_plan() {
    // What the oracle knows: one stage per worker, B whole.
    const Method& m = *find_method(std::array{"gpipe", "1f1b", "dp"}[random_() % 3]);
    Sizes sizes{.stages = static_cast<int>(random_() % 4) + 1,
                .micro_batches = static_cast<int>(random_() % 4) + 1};
    if (!m.legal_stages(sizes)) sizes.stages = 1;
    Schedule s = generate(m.name, sizes);
    if (random_() % 2) s = with_recompute(s);
    return random_() % 2 ? lower(s) : s;
  }
  std::size_t below(std::size_t n) { return random_() % n; }
  std::mt19937_64 random_{20240611};
};

TEST_F(Mutations, EveryDroppedDoubledMisplacedOrAlteredInstructionIsFound) {
  for (int n = 0; n < 4000; ++n) {
    const Schedule s = random_plan();
    Rows rows = rows_of(s);
    auto& row = rows[below(rows.size())];
    const std::size_t at = below(row.size());
    const Instr was = row[at];
    switch (below(4)) {
      case 0:  // drop
        row.erase(row.begin() + at);
        break;
      case 1:  // double
        row.insert(row.begin() + below(row.size() + 1), was);
        break;
      case 2: {  // wrong worker
        if (rows.size() < 2) continue;
        auto& other = rows[(was.stage + 1) % rows.size()];
        other.insert(other.begin() + below(other.size() + 1), was);
        row.erase(row.begin() + at);
        break;
      }
      default:  // another micro-batch
        if (was.micro < 0) continue;
        row[at].micro = static_cast<int>(below(s.micro_batches + 1));
        if (row[at] == was) continue;
    }
    // A plan whose only updates, or whose only recompute of a micro-batch, is gone is still a plan.
    if (was.kind == Kind::Recompute) continue;
    if (was.kind == Kind::Update && rows.size() == 1) continue;
    // Without its last message a plan is a compute-only one.
    const Schedule mutant = with_rows(s, rows);
    if (is_lowered(s) && !is_lowered(mutant)) continue;
    EXPECT_FALSE(accepted(mutant, kUnboundedSlots)) << to_string(was) << "\n"
                                                    << testing::PrintToString(cells_of(rows));
  }
}

TEST_F(Mutations, ReorderedPlansAreRefusedExactlyWhereTheOracleCannotRunThem) {
  int right = 0, wrong = 0;
  for (int n = 0; n < 4000; ++n) {
    const Schedule s = random_plan();
    Rows rows = rows_of(s);
    for (std::size_t swaps = below(3); swaps > 0; --swaps) {
      auto& row = rows[below(rows.size())];
      std::swap(row[below(row.size())], row[below(row.size())]);
    }
    const int slots = is_lowered(s) ? static_cast<int>(below(4)) - 1 : kUnboundedSlots;
    const bool runs = Oracle(rows, slots).runs();
    (runs ? right : wrong)++;
    EXPECT_EQ(accepted(with_rows(s, rows), slots), runs) << "slots " << slots << "\n"
                                                         << testing::PrintToString(cells_of(rows));
  }
  EXPECT_GT(right, 500);
  EXPECT_GT(wrong, 500);
}

}  // namespace
}  // namespace hetu
