// The result of a sample may depend only on the sample, its global index and the step. It must not
// depend on the size of its micro-batch or on the kernel row.
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/registry.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

struct Split {
  std::string op;
  std::vector<Shape> shapes;  ///< tensors with the batch axis are marked by kBatch
  std::vector<DType> dtypes;
  Attrs attrs;
  Layout images = Layout::Plain;
};

std::vector<Split> attention_splits() {
  const DType f = DType::Float32, i = DType::Int32;
  const Attrs heads = {{"heads", std::int64_t{2}}, {"dropout", 0.2}};
  const Attrs heads_grad = {
      {"heads", std::int64_t{2}}, {"dropout", 0.2}, {"key", std::string("grid/node")}};
  const Attrs grouped = {{"heads", std::int64_t{2}},
                         {"dropout", 0.2},
                         {"kv_heads", std::int64_t{1}},
                         {"causal", std::int64_t{1}},
                         {"window", std::int64_t{7}}};
  Attrs grouped_grad = grouped;
  grouped_grad.set("key", std::string("grid/node"));
  const Shape halves = {kBatch, 19, 16};
  const Shape x = {kBatch, 19, 32};
  return {
      {"attention", {x, x, x, {kBatch, 19}}, {f, f, f, i}, heads},
      {"attention", {x, x, x, {kBatch, 19, 19}}, {f, f, f, DType::Bool}, heads},
      {"attention_grad", {x, x, x, {kBatch, 2, 19, 19}, x, x}, {f, f, f, f, f, f}, heads_grad},
      {"attention", {x, halves, halves}, {f, f, f}, grouped},
      {"attention_grad",
       {x, halves, halves, {kBatch, 2, 19, 19}, x, x},
       {f, f, f, f, f, f},
       grouped_grad},
      {"fused_attention", {x, x, x, {kBatch, 19}}, {f, f, f, i}, heads},
      {"fused_attention_grad",
       {x, x, x, {kBatch, 2, 19, 2}, x, x, {kBatch, 19, 19}},
       {f, f, f, f, f, f, DType::Bool},
       heads_grad},
      {"fused_attention_grad",
       {x, halves, halves, {kBatch, 2, 19, 2}, x, x},
       {f, f, f, f, f, f},
       grouped_grad},
  };
}

std::vector<Split> splits() {
  const DType f = DType::Float32, i = DType::Int32;
  const Shape x = {kBatch, 19, 32}, wide = {kBatch, 21, 67};
  std::vector<Split> all = attention_splits();
  const std::vector<Split> others = {
      {"dropout", {wide}, {f}, {{"p", 0.4}}},
      {"dropout_grad", {wide}, {f}, {{"p", 0.4}, {"key", std::string("grid/node")}}},
      {"lstm", {{kBatch, 5, 64}, {64, 16}, {kBatch, 16}, {kBatch, 16}}, {f, f, f, f}, {}},
      {"gru", {{kBatch, 5, 48}, {48, 16}, {48}, {kBatch, 16}}, {f, f, f, f}, {}},
      {"gru_grad",
       {{48, 16}, {kBatch, 16}, {kBatch, 5, 16}, {kBatch, 5, 64}, {kBatch, 5, 16}},
       {f, f, f, f, f},
       {}},
      {"rotary", {x, {kBatch, 19}}, {f, i}, {{"heads", std::int64_t{2}}}},
      {"layer_norm", {wide, {67}, {67}}, {f, f, f}, {}},
      {"layer_norm_input_grad",
       {wide, {67}, {kBatch, 21}, {kBatch, 21}, wide},
       {f, f, f, f, f},
       {}},
      {"dropout_add_layer_norm",
       {wide, wide, {67}, {67}},
       {f, f, f, f},
       {{"p", 0.4}, {"key", std::string("grid/node")}}},
      {"dropout_add_layer_norm_grad",
       {wide, {67}, {kBatch, 21}, {kBatch, 21}, wide},
       {f, f, f, f, f},
       {{"p", 0.4}, {"key", std::string("grid/node")}}},
      {"softmax", {wide}, {f}, {}},
      {"softmax_grad", {wide, wide}, {f, f}, {}},
      {"gelu", {wide}, {f}, {}},
      {"gelu_grad", {wide, wide}, {f, f}, {}},
      {"tanh", {wide}, {f}, {}},
      {"relu_grad", {wide, wide}, {f, f}, {}},
      {"silu", {wide}, {f}, {}},
      {"softplus", {wide}, {f}, {}},
      {"log", {wide}, {f}, {}},
      {"add", {wide, {67}}, {f, f}, {}},
      {"mul", {{kBatch, 1, 67}, {21, 1}}, {f, f}, {}},
      {"div", {{}, wide}, {f, f}, {}},
      {"where", {{kBatch, 21, 1}, wide, {67}}, {DType::Bool, f, f}, {}},
      {"reduce_sum", {wide}, {f}, {{"axes", Shape{1}}}},
      {"reduce_mean", {wide}, {f}, {{"axes", Shape{1, 2}}}},
      {"reduce_logsumexp", {wide}, {f}, {{"axes", Shape{2}}}},
      {"softmax_cross_entropy_grad", {{kBatch, 67}, {kBatch}, {kBatch}, {}}, {f, i, f, f}, {}},
  };
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

Case bound(const Split& s, std::int64_t batch) {
  Case c{s.op, {}, {}, s.attrs, batch};
  for (std::size_t i = 0; i < s.shapes.size(); ++i)
    c.inputs.push_back({s.dtypes[i], bind_batch(s.shapes[i], batch)});
  c.images = s.images;
  c.outputs = infer_types(op_set().find(s.op), "grid/node", c.inputs, c.attrs);
  return c;
}

/// Returns samples [begin, begin + count) of a tensor whose first axis is the batch.
Tensor slice(const Tensor& t, std::int64_t batch, std::int64_t begin, std::int64_t count) {
  TensorType type = t.type();
  type.shape[0] = type.shape[0] / batch * count;
  Tensor part(type);
  const std::int64_t bytes = t.bytes() / batch;
  std::memcpy(part.data(), static_cast<const char*>(t.data()) + begin * bytes,
              static_cast<std::size_t>(part.bytes()));
  return part;
}

void check_split(const Split& s, const KernelRow& row, std::int64_t batch, std::int64_t first) {
  const Case whole = bound(s, batch);
  if (!row.takes(whole.desc())) return;
  std::mt19937_64 random(5);
  std::vector<Tensor> inputs;
  for (const TensorType& t : whole.inputs) inputs.push_back(random_tensor(t, random, 2));
  const RunContext run{11, 3, 100, true};
  const std::vector<Tensor> want = run_row(row, whole, inputs, run);
  for (const auto& [begin, count] : {std::pair{std::int64_t{0}, first}, {first, batch - first}}) {
    std::vector<Tensor> part;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      part.push_back(is_symbolic(s.shapes[i]) ? slice(inputs[i], batch, begin, count) : inputs[i]);
    const RunContext shifted{run.seed, run.step, run.sample_offset + begin, true};
    const std::vector<Tensor> got = run_row(row, bound(s, count), part, shifted);
    for (std::size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(got[o].same_bits(slice(want[o], batch, begin, count)))
          << s.op << " [" << row.implementation << "] of "
          << (s.images == Layout::Plain ? "plain" : "channels-last") << " "
          << to_string(s.shapes[0]) << " and " << to_string(s.shapes[1]) << ", "
          << dtype_name(s.dtypes[0]) << ", output " << o << ", samples " << begin << " to "
          << begin + count << " of " << batch;
  }
}

TEST(Batch, ASampleIsTheSameInAnyMicroBatch) {
  for (const Split& s : splits())
    for (const KernelRow* row : cpu_kernels(s.op))
      for (const std::int64_t first : {1, 2, 5}) check_split(s, *row, 7, first);
}

// The choice of a convolution's implementation depends only on the number of pixels of a sample.
// The sums of single pixels are long enough for implementations to add in different orders.
TEST(Batch, AConvolutionOfASampleIsTheSameInAnyMicroBatch) {
  for (const std::int64_t side : {5, 9})
    for (const std::int64_t window : {1, 3})
      for (const DType t : {DType::Float32, DType::BFloat16})
        for (const Layout images : {Layout::Plain, Layout::ChannelsLast}) {
          const std::int64_t many = window == 1 ? 416 : 40, few = 24;
          const Shape x = {kBatch, many, side, side};
          Attrs attrs = {{"padding", window / 2}};
          const Split forward = {"conv2d", {x, {few, many, window, window}}, {t, t}, attrs, images};
          for (const char* name : {"height", "width"}) attrs.set(name, side);
          const Split back = {
              "conv2d_input_grad", {x, {many, few, window, window}}, {t, t}, attrs, images};
          for (const Split& s : {forward, back})
            for (const KernelRow* row : cpu_kernels(s.op))
              for (const std::int64_t batch : {17, 34})
                for (const std::int64_t first : {1, 5}) check_split(s, *row, batch, first);
        }
}

TEST(Batch, RowsOfDropoutGiveTheSameBits) {
  for (const Split& s : splits()) {
    if (s.op != "dropout" && s.op != "dropout_grad") continue;
    const Case c = bound(s, 3);
    std::mt19937_64 random(6);
    const std::vector<Tensor> x = {random_tensor(c.inputs[0], random)};
    const auto rows = cpu_kernels(s.op);
    EXPECT_TRUE(run_row(*rows.front(), c, x, {1, 2, 3, true})[0].same_bits(
        run_row(*rows.back(), c, x, {1, 2, 3, true})[0]));
  }
}

TEST(Batch, WithoutTrainingDropoutIsTheIdentity) {
  const Split s = {"dropout", {{kBatch, 21, 67}}, {DType::Float32}, {{"p", 0.4}}};
  const Case c = bound(s, 3);
  std::mt19937_64 random(7);
  const std::vector<Tensor> x = {random_tensor(c.inputs[0], random)};
  for (const KernelRow* row : cpu_kernels(s.op))
    if (row->takes(c.desc())) {
      EXPECT_TRUE(run_row(*row, c, x, {1, 2, 3, false})[0].same_bits(x[0]));
    }
}

TEST(Batch, IndicesOutsideATableAreRefusedByName) {
  Case c{"embedding", {{DType::Float32, {4, 3}}, {DType::Int32, {2}}}, {}, {}, 1};
  c.outputs = infer_types(op_set().find(c.op), "grid/node", c.inputs, c.attrs);
  Tensor table(c.inputs[0], 0), ids(c.inputs[1], 0);
  for (const double bad : {4.0, -1.0}) {
    ids.set(1, bad);
    for (const KernelRow* row : cpu_kernels(c.op)) try {
        run_row(*row, c, {table, ids}, {});
        FAIL() << "index " << bad << " was taken";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Code::InvalidArgument);
        EXPECT_NE(std::string(e.what()).find("'grid/node'"), std::string::npos) << e.what();
      }
  }
}

}  // namespace
}  // namespace hetu::test
