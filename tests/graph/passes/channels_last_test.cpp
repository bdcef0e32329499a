// Tests the layout of images. Reorders occur only at the boundary of the image nodes, and the
// result is the same for every cut. Also tests the fusion of batch norms with the nodes that
// follow.
#include "graph/passes/channels_last.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "graph/passes/fuse_norm.h"
#include "tests/executor/conv_model.h"

namespace hetu {
namespace {

int count(const Graph& g, const std::string& op) {
  int found = 0;
  for (const Node& n : g.nodes) found += n.op == op ? 1 : 0;
  return found;
}

TEST(FuseNorm, TakesInWhatFollows) {
  const Graph before = testing_model::residual_model();
  const Graph g = fuse_norm(before);
  check_types(op_set(), g);
  EXPECT_EQ(count(g, "batch_norm"), 1) << "of the downsampling, which the add reads second";
  EXPECT_EQ(count(g, "batch_norm_relu"), 3);
  EXPECT_EQ(count(g, "batch_norm_add_relu"), 1);
  EXPECT_EQ(count(g, "batch_norm_relu_grad"), 3);
  EXPECT_EQ(count(g, "batch_norm_grad"), 2);
  EXPECT_EQ(count(g, "relu") + count(g, "add"), count(before, "add") - 1) << "adds of gradients";
  EXPECT_EQ(count(g, "relu_grad"), 1);
  ASSERT_EQ(g.buffers.size(), before.buffers.size());
  for (std::size_t i = 0; i < g.buffers.size(); ++i) {
    EXPECT_EQ(g.producer(g.buffers[i].next).name, before.producer(before.buffers[i].next).name);
  }
  EXPECT_EQ(print_graph(fuse_norm(g)), print_graph(g));
}

// An addend that is broadcast over the images is not a skip connection.
TEST(FuseNorm, LeavesAnAddThatBroadcasts) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3, 4, 4});
  const auto channel = [&](const char* name) { return b.parameter(name, {3}, {}); };
  const ValueId norm = b.apply("batch_norm", {x, channel("gamma"), channel("beta"),
                                              b.buffer("mean", {3}, {}), b.buffer("var", {3}, {})});
  const ValueId sum = b.apply("add", {norm, b.parameter("bias", {1, 3, 1, 1}, {})});
  const ValueId loss = b.apply("sum", {b.apply("relu", {sum})});
  b.fetch("loss", loss);
  b.differentiate(loss);
  const Graph g = fuse_norm(b.finish());
  check_types(op_set(), g);
  EXPECT_EQ(count(g, "batch_norm_add_relu"), 0);
  EXPECT_EQ(count(g, "batch_norm"), 1);
}

TEST(ChannelsLast, ReordersTheRimOfANetworkOnly) {
  const Graph g = channels_last(testing_model::residual_model(), op_set());
  check_graph(g);
  check_types(op_set(), g);
  EXPECT_EQ(count(g, "channels_last"), 1) << "the images that are fed";
  EXPECT_EQ(count(g, "plain"), 0);
  for (const Node& n : g.nodes) {
    if (is_leaf(n)) continue;
    const ImageArgs& images = op_set().find(n.op).images;
    if (images.inputs.empty() && images.outputs.empty()) continue;
    EXPECT_EQ(image_layout(g, op_set().find(n.op), n), Layout::ChannelsLast) << n.name;
    for (const int i : images.inputs) {
      EXPECT_EQ(g.values[n.inputs[i]].layout, Layout::ChannelsLast) << n.name << " input " << i;
    }
  }
  for (const GradientUse& u : g.gradients) {
    EXPECT_EQ(g.values[u.gradient].layout, Layout::Plain);
  }
  const std::string text = print_graph(g);
  EXPECT_THAT(text, testing::HasSubstr("] channels_last = conv2d "));
  EXPECT_EQ(print_graph(parse_graph(text)), text);
}

TEST(ChannelsLast, PutsImagesBackForWhatReadsThemPlain) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3, 4, 4});
  const ValueId y = b.apply("relu", {b.apply("conv2d", {x, b.parameter("w", {5, 3, 1, 1}, {})})});
  const ValueId loss = b.apply("sum", {b.apply("reshape", {y}, {{"shape", Shape{-80}}})});
  b.fetch("loss", loss);
  b.differentiate(loss);
  const Graph g = channels_last(b.finish(), op_set());
  check_types(op_set(), g);
  EXPECT_EQ(count(g, "channels_last"), 2) << "x, and the gradient of the reshape";
  EXPECT_EQ(count(g, "plain"), 1) << "for the reshape";
}

// A fetched image is reported in its plain layout. The pass adds no reorder that is not needed for
// this.
TEST(ChannelsLast, ReportsImagesPlain) {
  Graph before = testing_model::residual_model();
  std::vector<std::string> names;
  for (const Node& n : before.nodes) {
    const bool image = n.phase == Phase::Forward && !is_leaf(n) &&
                       before.values[n.outputs[0]].type.shape.size() == 4;
    if (!image) continue;
    names.push_back(n.name);
    before.fetches.push_back({n.name, n.outputs[0]});
  }
  ASSERT_GT(names.size(), 10U);
  const Graph fused = fuse_norm(before), g = channels_last(fused, op_set());
  check_types(op_set(), g);
  EXPECT_EQ(count(fused, "batch_norm_relu"), 0) << "what is fetched is made";
  EXPECT_EQ(count(g, "channels_last"), 1);
  EXPECT_EQ(count(g, "plain"), static_cast<int>(names.size()));
  for (const auto& [name, v] : g.fetches) EXPECT_EQ(g.values[v].layout, Layout::Plain) << name;
}

TEST(ChannelsLast, LeavesParametersAndTheirGradientsPlain) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {2, 3, 4, 4});
  const ValueId bias = b.parameter("bias", {2, 5, 4, 4}, {});
  const ValueId y = b.apply("conv2d", {x, b.parameter("w", {5, 3, 1, 1}, {})});
  const ValueId loss = b.apply("sum", {b.apply("mul", {b.apply("add", {y, bias}), bias})});
  b.fetch("loss", loss);
  b.differentiate(loss);
  const Graph g = channels_last(b.finish(), op_set());
  check_types(op_set(), g);
  for (const GradientUse& u : g.gradients) {
    EXPECT_EQ(g.values[u.gradient].layout, Layout::Plain) << g.parameters[u.parameter].name;
  }
}

TEST(ChannelsLast, LeavesGraphsWithoutConvolutionsAlone) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3, 4, 4});
  b.fetch("sum", b.apply("sum", {b.apply("relu", {x})}));
  const Graph g = b.finish();
  EXPECT_EQ(print_graph(channels_last(g, op_set())), print_graph(g));
}

}  // namespace
}  // namespace hetu
