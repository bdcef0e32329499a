// Sweeps of optimizers, on the device: over several parameters in a launch, and over touched rows.
#include <block.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <type_traits>

#include "graph/base/error.h"
#include "ops/cuda/chunks.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/sweeps.h"
#include "ops/cuda/touched.h"
#include "ops/sweep_rules.h"

namespace hetu::cuda {
namespace {

constexpr std::int64_t kSweepChunk = 4096;
constexpr int kQuad = 4;

/// LAMB's first sweep, which leaves weights alone.
struct LambMoments : sweeps::Lamb {
  static constexpr int kStates = 2;
  using Lamb::Lamb;
  HETU_HD void operator()(float&, float g, float& m, float& v) const { moments(g, m, v); }
};
template <class Rule>
constexpr bool kMovesWeights = !std::is_same_v<Rule, LambMoments>;

/// x: the element's states.
template <class Rule>
HETU_HD void change(const Rule& rule, float& w, float g, float* x) {
  if constexpr (Rule::kStates == 0) rule(w, g);
  if constexpr (Rule::kStates == 1) rule(w, g, x[0]);
  if constexpr (Rule::kStates == 2) rule(w, g, x[0], x[1]);
  if constexpr (Rule::kStates == 3) rule(w, g, x[0], x[1], x[2]);
}

/// What a rule does to one parameter whose states are float32, by quads where they lie so.
template <class Rule, class State>
struct SweepOf {
  Rule rule;
  float* w;
  const float* g;
  float* states[kMostStates];

  explicit SweepOf(const SweepCall& p)
      : rule(p), w(p.weight), g(p.gradient), states{p.state[0], p.state[1], p.state[2]} {}
  static std::int64_t elements(const SweepCall& p) { return p.elements; }

  HETU_HD void one(std::int64_t i) const {
    float x[kMostStates], weight = w[i];
    for (int s = 0; s < Rule::kStates; ++s) x[s] = states[s][i];
    change(rule, weight, g[i], x);
    if constexpr (kMovesWeights<Rule>) w[i] = weight;
    for (int s = 0; s < Rule::kStates; ++s) states[s][i] = x[s];
  }

  HETU_HD void quad(std::int64_t i) const {
    float weights[kQuad], gradients[kQuad], x[kMostStates][kQuad];
    load_quad(w + i, weights);
    load_quad(g + i, gradients);
    for (int s = 0; s < Rule::kStates; ++s) load_quad(states[s] + i, x[s]);
    for (int k = 0; k < kQuad; ++k) {
      float of_one[kMostStates];
      for (int s = 0; s < Rule::kStates; ++s) of_one[s] = x[s][k];
      change(rule, weights[k], gradients[k], of_one);
      for (int s = 0; s < Rule::kStates; ++s) x[s][k] = of_one[s];
    }
    if constexpr (kMovesWeights<Rule>) store_quad(w + i, weights);
    for (int s = 0; s < Rule::kStates; ++s) store_quad(states[s] + i, x[s]);
  }

  template <class Block>
  HETU_HD void sweep(const Block& block, std::int64_t begin, int count) const {
    bool in_quads = lies_in_quads(w) && lies_in_quads(g);
    for (int s = 0; s < Rule::kStates; ++s) in_quads = in_quads && lies_in_quads(states[s]);
    const int quads = in_quads ? count / kQuad : 0, rest = count - kQuad * quads;
    block.each(quads, [&](int q) { quad(begin + kQuad * q); });
    block.each(rest, [&](int i) { one(begin + kQuad * quads + i); });
  }
};

/// The same of bfloat16 states, in float32 while the rule changes them. Elements are counted from
/// where the parameter's group of random numbers begins.
template <class Rule>
struct SweepOf<Rule, BFloat16> {
  static constexpr std::int64_t kGroup = PhiloxStream::kGroup;
  static constexpr int kLanes = PhiloxStream::kLanes, kOfLane = kGroup / kLanes;
  Rule rule;
  float* w;
  const float* g;
  BFloat16* states[kMostStates];
  PhiloxStream rounding[kMostStates];
  std::int64_t first, count;

  explicit SweepOf(const SweepCall& p)
      : rule(p),
        w(p.weight),
        g(p.gradient),
        states{p.narrow[0], p.narrow[1], p.narrow[2]},
        rounding{p.rounding[0], p.rounding[1], p.rounding[2]},
        first(p.first),
        count(p.elements) {}
  static std::int64_t elements(const SweepCall& p) {
    return p.elements > 0 ? p.first % kGroup + p.elements : 0;
  }

  HETU_HD void one(std::int64_t i) const {
    float x[kMostStates], weight = w[i];
    for (int s = 0; s < Rule::kStates; ++s) x[s] = states[s][i];
    change(rule, weight, g[i], x);
    if constexpr (kMovesWeights<Rule>) w[i] = weight;
    for (int s = 0; s < Rule::kStates; ++s)
      states[s][i] = BFloat16::by_chance(x[s], rounding[s].bits(first + i));
  }

  /// The elements of a group whose random numbers are drawn at once, which are kLanes apart.
  HETU_HD void lane(std::int64_t at) const {
    const std::int64_t begin = at - first % kGroup;
    const auto is_there = [&](int k) {
      const std::int64_t i = begin + k * kLanes;
      return i >= 0 && i < count;
    };
    float weights[kOfLane], gradients[kOfLane], x[kOfLane][kMostStates];
    for (int k = 0; k < kOfLane; ++k) {
      const bool there = is_there(k);
      const std::int64_t i = begin + k * kLanes;
      weights[k] = there ? w[i] : 0.0F;
      gradients[k] = there ? g[i] : 0.0F;
      for (int s = 0; s < Rule::kStates; ++s) x[k][s] = there ? float{states[s][i]} : 0.0F;
    }
    Philox4 random[kMostStates];
    for (int s = 0; s < Rule::kStates; ++s) random[s] = rounding[s].numbers(first + begin);
    for (int k = 0; k < kOfLane; ++k) {
      change(rule, weights[k], gradients[k], x[k]);
      const std::int64_t i = begin + k * kLanes;
      if (!is_there(k)) continue;
      if constexpr (kMovesWeights<Rule>) w[i] = weights[k];
      for (int s = 0; s < Rule::kStates; ++s)
        states[s][i] = BFloat16::by_chance(x[k][s], PhiloxStream::number(random[s], k * kLanes));
    }
  }

  template <class Block>
  HETU_HD void sweep(const Block& block, std::int64_t begin, int some) const {
    const int groups = static_cast<int>((some + kGroup - 1) / kGroup);
    block.each(groups * kLanes, [&](int t) { lane(begin + t / kLanes * kGroup + t % kLanes); });
  }
};

/// A block per chunk: sweep(block, begin, elements) of its tensor.
template <class Of>
struct SweepChunks : Chunks<Of, kSweepChunk> {
  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const auto& part = this->holder(block.index());
    const std::int64_t begin = (block.index() - part.first) * kSweepChunk;
    const std::int64_t left = part.elements - begin;
    part.of.sweep(block, begin, static_cast<int>(left < kSweepChunk ? left : kSweepChunk));
  }
};

template <class Rule, class State>
void sweep_of(std::span<const SweepCall> calls) {
  using Of = SweepOf<Rule, State>;
  in_chunks(
      calls, SweepChunks<Of>(),
      [](auto& body, const SweepCall& p) { body.add(Of(p), Of::elements(p)); },
      [](const auto& body) { for_blocks(body.chunks(), 0, body); });
}

bool is_narrow(const SweepCall& p) { return p.narrow[0] != nullptr; }

/// Calls one of two with the calls that have float32 states or bfloat16 ones.
template <class Float, class Narrow>
void by_states(std::span<const SweepCall> calls, const Float& of_float, const Narrow& of_narrow) {
  for (auto from = calls.begin(); from != calls.end();) {
    const auto to = std::find_if(
        from, calls.end(), [&](const SweepCall& p) { return is_narrow(p) != is_narrow(*from); });
    if (is_narrow(*from))
      of_narrow(std::span(from, to));
    else
      of_float(std::span(from, to));
    from = to;
  }
}

template <class Rule>
void sweep_many(std::span<const SweepCall> calls) {
  by_states(calls, &sweep_of<Rule, float>, &sweep_of<Rule, BFloat16>);
}

/// A block per row: its gradient is looked at whole before any of it is used.
template <class Rule, class State>
struct RowSweepOf : RowWork {
  static constexpr int kRounds = 1;  // elements that are not 0
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

/// A parameter once its moments are there: the direction is made twice, which costs less than
/// memory for it.
template <class State>
struct LambOf {
  sweeps::Lamb rule;
  float* w;
  const State *m, *v;
  float* length;  ///< of its step
  HETU_HD float direction(std::int64_t i) const { return rule.direction(w[i], m[i], v[i]); }
  template <class Block>
  HETU_HD void sweep(const Block& block, std::int64_t begin, int count) const {
    const float scaled = *length;
    block.each(count, [&](int i) { w[begin + i] -= scaled * direction(begin + i); });
  }
};

template <class State>
using LambChunks = SweepChunks<LambOf<State>>;

/// A row per chunk: the squares of weights, and of the direction, to parts[2 * row] and behind it.
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

/// A row per parameter.
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

/// What of the workspace a launch of LAMB uses: lengths of steps, and behind them parts of sums.
template <class State>
void lamb_of(std::span<const SweepCall> calls) {
  sweep_of<LambMoments, State>(calls);
  auto* const lengths = static_cast<float*>(bench().workspace);
  constexpr std::int64_t kLengths = 1024;  // bytes
  auto* const parts =
      reinterpret_cast<double*>(static_cast<std::byte*>(bench().workspace) + kLengths);
  static_assert(LambChunks<State>::kMost * std::int64_t{sizeof(float)} <= kLengths);
  in_chunks(
      calls, LambChunks<State>(),
      [&](auto& chunks, const SweepCall& p) {
        State* const* const states = states_of(p, State());
        chunks.add({sweeps::Lamb(p), p.weight, states[0], states[1], lengths + chunks.parts()},
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
  void (*touched)(const SweepCall&, const TouchedRows&);  // null: its elements meet
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
  fail(Code::Internal, "CUDA has no such sweep");
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
    fail(Code::Internal, "CUDA has no sweep over rows for that optimizer");
  row.touched(call, touched);
}

}  // namespace hetu::cuda
