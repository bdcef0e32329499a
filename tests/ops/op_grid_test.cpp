// One harness for every operator record, sample and kernel row. A new operator needs no new test
// code. tests/ops/kernel_cases.h adds larger shapes for the fast rows.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/bfloat16.h"
#include "graph/builder.h"
#include "ops/registry.h"
#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

constexpr std::uint64_t kSeed = 20240607;
/// Returns the numbers of threads to compare with one thread. Work is divided in the same way for
/// all dtypes, so narrow dtypes use fewer numbers.
std::vector<int> threads_of(DType floats) {
  return floats == DType::Float32 ? std::vector<int>{2, 3, 4, 7} : std::vector<int>{3};
}

// Inputs of a floating type that have no gradient by design.
const std::set<std::pair<std::string, std::size_t>> kNoGradient = {
    {"div_scalar", 1},             // refused: the divisor is a count
    {"expand", 1},                 // only its shape is read
    {"step_sum", 0},               // depends on placeholders only
    {"softmax_cross_entropy", 2},  // refused: class weights are constants
    {"batch_norm", 3},             // buffers: training does not read them
    {"batch_norm", 4},
};

/// Returns the tolerance relative to the norm of an output. It covers the float32 rounding of sums
/// of some thousands of terms. A narrow output adds one rounding to 8 or 11 significant bits.
/// Statistics of a sum that is itself rounded are as exact as that sum. batch_norm_add_relu_grad
/// sums few terms to a smaller result, so its narrow tolerance is doubled.
double tolerance(const std::string& op, DType output, DType floats = DType::Float32) {
  if (op == "dropout_add_layer_norm") output = is_narrow(floats) ? floats : output;
  if (op == "batch_norm_add_relu_grad" && is_narrow(floats)) return 2 * tolerance("", floats);
  if (output == DType::BFloat16) return 1.0 / 256;
  if (output == DType::Float16) return 1.0 / 2048;
  static const std::set<std::string> kSums = {"linear",
                                              "linear_relu",
                                              "linear_gelu",
                                              "linear_gelu_tanh",
                                              "dropout_add_layer_norm",
                                              "dropout_add_layer_norm_grad",
                                              "linear_input_grad",
                                              "linear_input_grad_add",
                                              "linear_weight_grad",
                                              "linear_weight_bias_grad",
                                              "matmul",
                                              "attention",
                                              "attention_grad",
                                              "fused_attention",
                                              "fused_attention_grad",
                                              "attention_scores_grad",
                                              "lstm",
                                              "lstm_grad",
                                              "gru",
                                              "gru_grad",
                                              "sum_rows",
                                              "layer_norm_gamma_grad",
                                              "layer_norm",
                                              "layer_norm_input_grad",
                                              "softmax_cross_entropy",
                                              "softmax_grad",
                                              "conv2d",
                                              "conv2d_input_grad",
                                              "conv2d_weight_grad",
                                              "conv_transpose2d",
                                              "conv2d_factor",
                                              "kronecker_factor",
                                              "batch_norm",
                                              "batch_norm_grad",
                                              "batch_norm_relu",
                                              "batch_norm_add_relu",
                                              "batch_norm_relu_grad",
                                              "batch_norm_add_relu_grad",
                                              "global_avg_pool"};
  return kSums.count(op) != 0 ? 2e-6 : 5e-7;
}

// Values beyond the largest float16 become infinite.
bool leaves_float16(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::fabs(v) > 65504; });
}

class EveryOperator : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& def() const { return op_set().find(GetParam()); }
  RunContext run() const { return {kSeed, 7, 40, true, 4}; }

  /// Calls body(case, inputs, row, floats) for every sample, every kernel row that takes it, and
  /// every dtype of floats.
  template <class Body>
  void for_rows(const Body& body) {
    for (const DType floats : floats_of(def()))
      for (const Sample& s : samples_of(def())) {
        const Case c = make_case(def(), s, floats);
        const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
        for (const KernelRow* row : cpu_kernels(def().name)) {
          if (!row->takes(c.desc())) continue;
          std::string shapes;
          for (const TensorType& t : c.inputs) shapes += fmt::format(" {}", to_string(t));
          SCOPED_TRACE(fmt::format("{} [{}]{}, seed {}", c.op, row->implementation, shapes, kSeed));
          body(c, inputs, *row, floats);
        }
      }
  }
};

TEST_P(EveryOperator, HasDocSamplesAndAKernelWithAReferenceLast) {
  EXPECT_GT(def().doc.size(), 10u);
  EXPECT_FALSE(def().samples.empty());
  const std::vector<const KernelRow*> rows = cpu_kernels(def().name);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.back()->fits, nullptr);
  EXPECT_STREQ(rows.back()->implementation, "reference");
}

TEST_P(EveryOperator, WritesExactlyItsOutputs) {
  for_rows([&](const Case& c, const std::vector<Tensor>& inputs, const KernelRow& row, DType) {
    const std::vector<Tensor> a = run_row(row, c, inputs, run(), 0xff);
    const std::vector<Tensor> b = run_row(row, c, inputs, run(), 0x00);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(a[i].same_bits(b[i]))
          << "output " << i << " holds elements that were not written, or differs when run twice";
  });
}

TEST_P(EveryOperator, EveryRowAgreesWithFloat64) {
  for_rows([&](const Case& c, const std::vector<Tensor>& inputs, const KernelRow& row, DType) {
    const std::vector<Tensor> want = in_float64(c, inputs, run());
    const std::vector<Tensor> got = run_row(row, c, inputs, run());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const DType dtype = got[i].type().dtype;
      if (dtype == DType::Float16 && leaves_float16(want[i].values())) continue;
      EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                tolerance(c.op, dtype, c.inputs.empty() ? dtype : c.inputs[0].dtype))
          << "output " << i;
    }
  });
}

// If the record allows it, the output may overwrite an input.
TEST_P(EveryOperator, WritesOverAnInputAsItsRecordSays) {
  const int over = def().overwrites;
  if (over < 0) GTEST_SKIP() << "writes over no input";
  for_rows([&](const Case& c, const std::vector<Tensor>& inputs, const KernelRow& row, DType) {
    const PreparedKernel kernel = row.prepare(c.desc());
    const Tensor want = run_row(row, c, inputs, run())[0];
    std::vector<Tensor> own = inputs;
    Tensor& both = own[static_cast<std::size_t>(over)];
    ASSERT_TRUE(both.type() == c.outputs[0]) << "another type";
    Tensor scratch({DType::Int8, {kernel.scratch_bytes}});
    std::vector<const void*> in;
    for (const Tensor& t : own) in.push_back(t.data());
    void* const out[] = {both.data()};
    const RunContext context = run();
    kernel.run({in.data(), out, scratch.data(), context});
    EXPECT_TRUE(both.guards_hold() && both.same_bits(want)) << "written over input " << over;
  });
}

// An accumulating kernel adds its result 0 to the previous contents and writes its other results as
// usual, for any number of threads.
TEST_P(EveryOperator, AddsToASumWhereItHasSuchAForm) {
  const int before = omp_get_max_threads();
  int adding = 0;
  for_rows(
      [&](const Case& c, const std::vector<Tensor>& inputs, const KernelRow& row, DType floats) {
        const PreparedKernel kernel = row.prepare(c.desc());
        if (!kernel.add) return;
        ++adding;
        const std::vector<Tensor> others = run_row(row, c, inputs, run());
        std::mt19937_64 random(kSeed + 1);
        const Tensor start = random_tensor(c.outputs[0], random);
        std::vector<double> want = in_float64(c, inputs, run())[0].values();
        const std::vector<double> before_it = start.values();
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += before_it[i];
        std::vector<Tensor> sums;
        std::vector<int> counts = threads_of(floats);
        counts.insert(counts.begin(), 1);
        for (const int threads : counts) {
          omp_set_num_threads(threads);
          sums.push_back(start);
          Tensor scratch({DType::Int8, {kernel.scratch_bytes}});
          std::vector<const void*> in;
          for (const Tensor& t : inputs) in.push_back(t.data());
          std::vector<Tensor> found;
          for (const TensorType& t : c.outputs) found.emplace_back(t, 0xff);
          std::vector<void*> out;
          for (Tensor& t : found) out.push_back(t.data());
          out[0] = sums.back().data();
          const RunContext context = run();
          kernel.add({in.data(), out.data(), scratch.data(), context});
          for (std::size_t i = 1; i < found.size(); ++i)
            EXPECT_TRUE(found[i].guards_hold() && found[i].same_bits(others[i])) << i;
          EXPECT_TRUE(scratch.guards_hold() && sums.back().guards_hold());
          EXPECT_TRUE(sums.back().same_bits(sums[0])) << threads << " threads";
        }
        EXPECT_LE(relative_difference(sums[0].values(), want), tolerance(c.op, DType::Float32));
      });
  omp_set_num_threads(before);
  const std::set<std::string> add = {"linear_weight_grad", "linear_weight_bias_grad"};
  EXPECT_EQ(adding > 0, add.count(GetParam()) == 1);
}

// A kernel that reads a packed input must give the same bits as without packing, for any number of
// threads that pack or read.
TEST_P(EveryOperator, ReadsAPackedInputWhereItHasSuchAForm) {
  const int before = omp_get_max_threads();
  int packing = 0;
  for_rows(
      [&](const Case& c, const std::vector<Tensor>& inputs, const KernelRow& row, DType floats) {
        const PreparedKernel kernel = row.prepare(c.desc());
        if (kernel.packed.input < 0) return;
        ++packing;
        const std::vector<Tensor> want = run_row(row, c, inputs, run());
        const RunContext context = run();
        for (const int threads : threads_of(floats)) {
          omp_set_num_threads(threads);
          Tensor packed({DType::Int8, {kernel.packed.bytes}});
          const void* from[] = {inputs[static_cast<std::size_t>(kernel.packed.input)].data()};
          void* to[] = {packed.data()};
          kernel.packed.pack({from, to, nullptr, context});
          omp_set_num_threads(threads == 1 ? 3 : 1);
          Tensor scratch({DType::Int8, {kernel.scratch_bytes}});
          std::vector<Tensor> found;
          for (const TensorType& t : c.outputs) found.emplace_back(t);
          std::vector<const void*> in;
          std::vector<void*> out;
          for (const Tensor& t : inputs) in.push_back(t.data());
          for (Tensor& t : found) out.push_back(t.data());
          in[static_cast<std::size_t>(kernel.packed.input)] = packed.data();
          kernel.packed.run({in.data(), out.data(), scratch.data(), context});
          EXPECT_TRUE(packed.guards_hold() && scratch.guards_hold());
          for (std::size_t i = 0; i < found.size(); ++i)
            EXPECT_TRUE(found[i].guards_hold() && found[i].same_bits(want[i])) << "output " << i;
        }
      });
  omp_set_num_threads(before);
  const std::set<std::string> packs = {
      "linear",           "linear_relu",       "linear_gelu",
      "linear_gelu_tanh", "linear_input_grad", "linear_input_grad_add"};
  EXPECT_EQ(packing > 0, packs.count(GetParam()) == 1);
}

// Rows for channels-last images must agree with plain ones, and have the same bits for any number
// of threads.
TEST_P(EveryOperator, ChannelsLastRowsAgreeWithFloat64) {
  const ImageArgs& images = def().images;
  if (images.inputs.empty() && images.outputs.empty()) GTEST_SKIP() << "no images";
  const int before = omp_get_max_threads();
  int rows = 0;
  std::vector<std::pair<DType, Sample>> all;
  for (const DType floats : floats_of(def()))
    for (const Sample& s : samples_of(def())) all.emplace_back(floats, s);
  for (const auto& [floats, s] : all) {
    Case c = make_case(def(), s, floats);
    std::vector<int> counts = threads_of(floats);
    counts.insert(counts.begin(), 1);
    if (!can_lie_channels_last(def(), c)) continue;
    const std::vector<Tensor> inputs = make_inputs(c, s, kSeed);
    const std::vector<Tensor> want = in_float64(c, inputs, run());
    c.images = Layout::ChannelsLast;
    for (const KernelRow* row : cpu_kernels(c.op)) {
      if (!row->takes(c.desc())) continue;
      ++rows;
      SCOPED_TRACE(fmt::format("{} [{}] {}, seed {}", c.op, row->implementation,
                               to_string(c.inputs[0]), kSeed));
      std::vector<std::vector<Tensor>> results;
      for (const int threads : counts) {
        omp_set_num_threads(threads);
        results.push_back(run_row(*row, c, moved(images.inputs, inputs, "channels_last"), run()));
      }
      const std::vector<Tensor> got = moved(images.outputs, results[0], "plain");
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
                  tolerance(c.op, got[i].type().dtype, floats))
            << "output " << i;
        for (std::size_t k = 1; k < results.size(); ++k)
          EXPECT_TRUE(results[0][i].same_bits(results[k][i]))
              << "output " << i << " differs with " << counts[k] << " threads";
      }
    }
  }
  omp_set_num_threads(before);
  EXPECT_GT(rows, 0) << "no sample, or no kernel, is channels-last";
}

TEST_P(EveryOperator, GivesTheSameBitsUnderAnyNumberOfThreads) {
  const int before = omp_get_max_threads();
  for_rows([&](const Case& c, const std::vector<Tensor>& inputs, const KernelRow& row,
               DType floats) {
    omp_set_num_threads(1);
    const std::int64_t scratch = row.prepare(c.desc()).scratch_bytes;
    const std::vector<Tensor> one = run_row(row, c, inputs, run());
    for (const int threads : threads_of(floats)) {
      omp_set_num_threads(threads);
      EXPECT_EQ(row.prepare(c.desc()).scratch_bytes, scratch) << threads << " threads";
      const std::vector<Tensor> some = run_row(row, c, inputs, run());
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(some[i].same_bits(one[i])) << "output " << i << ", " << threads << " threads";
    }
  });
  omp_set_num_threads(before);
}

/// A graph with loss = sum(op(x) * r), where input `wanted` is the only parameter.
struct Probe {
  Graph graph;
  ValueId parameter = kNone;
  ValueId gradient = kNone;
  std::map<ValueId, Tensor> feeds;
};

Probe make_probe(const OpDef& def, const Sample& s, std::size_t wanted) {
  Probe p;
  std::mt19937_64 random(kSeed);
  Builder b(op_set());
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < s.shapes.size(); ++i) {
    const TensorType type{dtype_of(s, i), bind_batch(s.shapes[i], batch_of(s))};
    const std::string name = fmt::format("x{}", i);
    const ValueId v = i == wanted ? b.parameter(name, type.shape, {})
                                  : b.placeholder(name, type.dtype, type.shape);
    if (i == wanted) p.parameter = v;
    p.feeds[v] = random_tensor(type, random, s.integers_below, s.negative_integers, s.positive);
    inputs.push_back(v);
  }
  const ValueId y = b.apply(def.name, inputs, s.attrs, "probed");
  const ValueId r = b.placeholder("r", DType::Float32, b.type(y).shape);
  p.feeds[r] = random_tensor(b.type(r), random);
  b.differentiate(b.apply("sum", {b.apply("mul", {y, r})}));
  p.graph = b.finish();
  p.gradient = p.graph.gradients.at(0).gradient;
  return p;
}

TEST_P(EveryOperator, GradientRuleAgreesWithDifferences) {
  if (def().grad == nullptr) GTEST_SKIP() << "not differentiable";
  RunContext context = run();
  context.loss_scale = 1;
  for (const Sample& s : def().samples)
    for (std::size_t i = 0; i < s.shapes.size(); ++i) {
      if (dtype_of(s, i) != DType::Float32 || kNoGradient.count({def().name, i}) != 0) continue;
      const DType made = make_case(def(), s).outputs[0].dtype;
      // A value rounded to few bits has no meaningful finite difference. See
      // Cast.PassesItsGradientOn.
      if (!is_floating(made) || is_narrow(made)) continue;
      const Probe p = make_probe(def(), s, i);
      const auto loss = [&](std::int64_t element, double step) {
        std::map<ValueId, Tensor> feeds = p.feeds;
        Tensor& x = feeds.at(p.parameter) = feeds.at(p.parameter).converted(DType::Float64);
        x.set(element, x.at(element) + step);
        return evaluate(p.graph, feeds, DType::Float64, KernelChoice::Reference, context)
            .at(p.graph.loss)
            .at(0);
      };
      constexpr double kStep = 1e-5;
      std::vector<double> numeric;
      for (std::int64_t e = 0; e < p.feeds.at(p.parameter).count(); ++e)
        numeric.push_back((loss(e, kStep) - loss(e, -kStep)) / (2 * kStep));
      const auto wide =
          evaluate(p.graph, p.feeds, DType::Float64, KernelChoice::Reference, context);
      const auto fast = evaluate(p.graph, p.feeds, DType::Float32, KernelChoice::Best, context);
      const std::vector<double> exact = wide.at(p.gradient).values();
      // If the gradient is 0 in exact arithmetic, only the absolute error is meaningful.
      double largest = 0;
      for (std::size_t e = 0; e < exact.size(); ++e)
        largest = std::max(largest, std::fabs(exact[e] - numeric[e]));
      EXPECT_LE(largest, 1e-7 * (1 + std::fabs(loss(0, 0))))
          << def().name << " input " << i << " of shape " << to_string(s.shapes[i]) << ", seed "
          << kSeed;
      double worst = 0, norm = 0;
      const std::vector<double> single = fast.at(p.gradient).values();
      for (std::size_t e = 0; e < exact.size(); ++e) {
        worst = std::max(worst, std::fabs(exact[e] - single[e]));
        norm = std::max(norm, std::fabs(exact[e]));
      }
      EXPECT_LE(worst, 1e-5 * (norm + 1)) << def().name << " input " << i << " in float32";
    }
}

// A cast to or from bfloat16 rounds its gradient as it rounds values.
TEST(Cast, PassesItsGradientOn) {
  Builder b(op_set());
  const ValueId x = b.parameter("x", {3, 17}, {});
  const auto as = [&](ValueId v, const char* dtype) {
    return b.apply("cast", {v}, {{"dtype", std::string(dtype)}});
  };
  const ValueId r = b.placeholder("r", DType::Float32, {3, 17});
  const ValueId narrow = b.apply("mul", {as(x, "bfloat16"), as(r, "bfloat16")});
  b.differentiate(b.apply("sum", {as(narrow, "float32")}));
  const Graph g = b.finish();
  std::mt19937_64 random(kSeed);
  std::map<ValueId, Tensor> feeds;
  for (const ValueId v : {x, r}) feeds[v] = random_tensor({DType::Float32, {3, 17}}, random);
  const auto values = evaluate(g, feeds, DType::Float32, KernelChoice::Best, {kSeed, 7, 40, true});
  const Tensor& gradient = values.at(g.gradients.at(0).gradient);
  EXPECT_EQ(gradient.type().dtype, DType::Float32);
  for (std::int64_t i = 0; i < gradient.count(); ++i)
    EXPECT_EQ(gradient.at(i), float(BFloat16(static_cast<float>(feeds[r].at(i)))))
        << "seed " << kSeed;
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOperator, testing::ValuesIn(operators()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace hetu::test
