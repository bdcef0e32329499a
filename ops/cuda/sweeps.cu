// Optimizer sweeps on the device: over several parameters per launch, and over touched rows.
#include <launch.h>

#include <array>
#include <iterator>

#include "base/error.h"
#include "ops/cuda/sweep_bodies.h"
#include "ops/cuda/sweeps.h"
#include "ops/cuda/touched.h"
#include "ops/sweep_rules.h"

namespace hetu::cuda {
namespace {

/// LAMB's first sweep, which updates the moments and leaves the weights unchanged.
struct LambMoments : sweeps::Lamb {
  static constexpr int kStates = 2;
  using LeavesWeights = void;
  using Lamb::Lamb;
  HETU_HD void operator()(float&, float g, float& m, float& v) const { moments(g, m, v); }
};

template <class Rule>
void sweep_many(std::span<const SweepCall> calls) {
  by_states(calls, &sweep_of<Rule, float>, &sweep_of<Rule, BFloat16>);
}

/// A body that updates the rows that have a nonzero gradient, one block per row. The whole gradient
/// of a row is checked before any element is updated.
template <class Rule, class State>
struct RowSweepOf : RowWork {
  static constexpr int kRounds = 1;  // number of nonzero elements
  SweepOf<Rule, State> of;
  TouchedRows rows;
  HETU_HD double term(int, std::int64_t row, std::int64_t j, const double*) const {
    return is_touched(rows, row) && of.g[row * rows.width + j] != 0.0F ? 1.0 : 0.0;
  }
  HETU_HD void write(std::int64_t row, std::int64_t j, const double* filled) const {
    if (filled[0] > 0) of.one(row * rows.width + j);
  }
};

template <class Rule, class State>
void sweep_touched_of(const SweepCall& p, const TouchedRows& touched) {
  const RowSweepOf<Rule, State> body{{}, SweepOf<Rule, State>(p), touched};
  for_rows(touched.rows, touched.width, body);
}

template <class Rule>
void sweep_touched(const SweepCall& p, const TouchedRows& touched) {
  if (is_narrow(p)) return sweep_touched_of<Rule, BFloat16>(p, touched);
  sweep_touched_of<Rule, float>(p, touched);
}

/// LAMB's update of a parameter once its moments are updated. The direction is computed twice,
/// which costs less than storing it.
template <class State>
struct LambOf {
  sweeps::Lamb rule;
  float* w;
  const State *m, *v;
  float* length;  ///< length of the parameter's step
  Rounded rounded;
  HETU_HD float direction(std::int64_t i) const { return rule.direction(w[i], m[i], v[i]); }
  template <class Block>
  HETU_HD void sweep(const Block& block, std::int64_t begin, int count) const {
    const float scaled = *length;
    block.each(count, [&](int c) {
      const std::int64_t i = begin + c;
      const float now = w[i] - scaled * direction(i);
      w[i] = now;
      rounded.one(i, now);
    });
  }
};

template <class State>
using LambChunks = SweepChunks<LambOf<State>>;

/// A body that computes two sums of squares per chunk: of the weights, and of the direction. A row
/// of for_rows() stands for a chunk. The sums go to parts[2 * row] and parts[2 * row + 1].
template <class State>
struct LambSquares : RowWork {
  static constexpr int kRounds = 2;
  static constexpr std::int64_t kColumns = kMostThreads;
  const LambChunks<State> chunks;
  double* parts;
  HETU_HD double term(int round, std::int64_t row, std::int64_t j, const double*) const {
    const auto& part = chunks.holder(row);
    if (part.of.rule.decay <= 0) return 0;
    const std::int64_t begin = (row - part.first) * kSweepChunk;
    const std::int64_t end =
        begin + kSweepChunk < part.elements ? begin + kSweepChunk : part.elements;
    double sum = 0;
    for (std::int64_t i = begin + j; i < end; i += kColumns) {
      const double x = round == 0 ? part.of.w[i] : part.of.direction(i);
      sum += x * x;
    }
    return sum;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t row, const double* sums) const {
    parts[2 * row] = sums[0];
    parts[2 * row + 1] = sums[1];
  }
};

/// A body that computes the length of a parameter's step, one row of for_rows() each.
template <class State>
struct LambLengths : RowWork {
  static constexpr int kRounds = 2;
  const LambChunks<State> chunks;
  const double* parts;
  HETU_HD double term(int round, std::int64_t t, std::int64_t j, const double*) const {
    const auto& part = chunks.part(t);
    return j < part.chunks() ? parts[2 * (part.first + j) + round] : 0.0;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t t, const double* sums) const {
    const LambOf<State>& of = chunks.part(t).of;
    *of.length = of.rule.length(sums[0], sums[1]);
  }
};

BFloat16* const* states_of(const SweepCall& p, BFloat16) { return p.narrow; }
float* const* states_of(const SweepCall& p, float) { return p.state; }

/// Runs LAMB. Each launch uses the workspace for the lengths of steps, followed by partial sums.
template <class State>
void lamb_of(std::span<const SweepCall> calls) {
  sweep_of<LambMoments, State>(calls);
  auto* const lengths = static_cast<float*>(kernel_context().workspace);
  constexpr std::int64_t kLengths = 1024;  // bytes
  auto* const parts =
      reinterpret_cast<double*>(static_cast<std::byte*>(kernel_context().workspace) + kLengths);
  static_assert(LambChunks<State>::kMost * std::int64_t{sizeof(float)} <= kLengths);
  in_chunks(
      calls, LambChunks<State>(),
      [&](auto& chunks, const SweepCall& p) {
        State* const* const states = states_of(p, State());
        chunks.add(
            {sweeps::Lamb(p), p.weight, states[0], states[1], lengths + chunks.parts(), Rounded(p)},
            p.elements);
      },
      [&](const LambChunks<State>& chunks) {
        HETU_ASSERT(kLengths + 16 * chunks.chunks() <= kWorkspaceBytes);
        using Squares = LambSquares<State>;
        for_rows(chunks.chunks(), Squares::kColumns, Squares{{}, chunks, parts});
        for_rows(chunks.parts(), columns_of_parts(chunks), LambLengths<State>{{}, chunks, parts});
        for_blocks(chunks.chunks(), 0, chunks);
      });
}

void lamb_many(std::span<const SweepCall> calls) {
  by_states(calls, &lamb_of<float>, &lamb_of<BFloat16>);
}

struct Row {
  SweepRow whole;
  void (*many)(std::span<const SweepCall>);
  void (*touched)(const SweepCall&, const TouchedRows&);  // null: elements aren't independent
};

template <void (*many)(std::span<const SweepCall>)>
void one(const SweepCall& p) {
  many({&p, 1});
}

template <class Rule>
constexpr Row row(std::string_view name) {
  return {{name, &one<&sweep_many<Rule>>}, &sweep_many<Rule>, &sweep_touched<Rule>};
}

constexpr Row kRows[] = {row<sweeps::Sgd>("sgd"),
                         row<sweeps::Momentum<false>>("momentum"),
                         row<sweeps::Momentum<true>>("nesterov"),
                         row<sweeps::Adagrad>("adagrad"),
                         row<sweeps::Adam<false>>("adam"),
                         row<sweeps::Amsgrad>("amsgrad"),
                         row<sweeps::Adam<true>>("adamw"),
                         row<sweeps::Adam<true, false>>("bertadam"),
                         {{"lamb", &one<&lamb_many>}, &lamb_many, nullptr}};

const Row& row_of(Sweep sweep) {
  for (const Row& row : kRows)
    if (row.whole.run == sweep) return row;
  fail(Code::Internal, "this optimizer sweep does not exist on CUDA");
}

}  // namespace

std::span<const SweepRow> sweep_table() {
  static const auto sweeps = [] {
    std::array<SweepRow, std::size(kRows)> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].whole;
    return all;
  }();
  return sweeps;
}

void sweep_all(std::span<const SweepCall> calls, Sweep sweep) { row_of(sweep).many(calls); }

void sweep_rows(const SweepCall& call, const TouchedRows& touched, Sweep sweep) {
  const Row& row = row_of(sweep);
  if (row.touched == nullptr)
    fail(Code::Internal, "this optimizer has no sweep over single rows on CUDA");
  row.touched(call, touched);
}

}  // namespace hetu::cuda
