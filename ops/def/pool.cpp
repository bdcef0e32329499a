// Pooling of images [N, C, H, W], and changes of their layout.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const AttrSpec kHeight = {"height", std::int64_t{0}, true, "height of x"};
const AttrSpec kWidth = {"width", std::int64_t{0}, true, "width of x"};

OpDef max_pool2d() {
  return {
      .name = "max_pool2d",
      .doc =
          "The largest element of each window; padding never counts. index is the element's index "
          "in its plane, row by row. Of equal elements the first counts, as in PyTorch.",
      .inputs = {"x"},
      .outputs = {"y", "index"},
      .attrs = {{"kernel", std::int64_t{2}, true, "height and width of the window"},
                {"stride", std::int64_t{1}, false, "step between windows, in both directions"},
                {"padding", std::int64_t{0}, false,
                 "rows and columns around x, at most kernel / 2"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        const std::int64_t kernel = a.attrs.integer("kernel");
        check(kernel >= 1, a, "kernel must be >= 1, got {}", kernel);
        check(2 * a.attrs.integer("padding") <= kernel, a,
              "padding must be at most kernel / 2 = {}, got {}", kernel / 2,
              a.attrs.integer("padding"));
        Shape y = a.inputs[0].shape;
        for (std::size_t axis = 2; axis < 4; ++axis) y[axis] = window_count(a, y[axis], kernel);
        return {float32(y), int32(y)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Shape& x = b.type(g.inputs[0]).shape;
        Attrs attrs = g.node.attrs;
        attrs.set("height", x[2]);
        attrs.set("width", x[3]);
        return {if_wanted(g.wanted[0], b, "max_pool2d_grad", {only_dy(g), g.outputs[1]}, attrs)};
      },
      .flops =
          [](const InferArgs& a) {
            const std::int64_t kernel = a.attrs.integer("kernel");
            return elements(a.inputs[0]) * kernel * kernel;
          },
      .samples = {{.shapes = {{2, 3, 5, 4}},
                   .attrs = {{"kernel", std::int64_t{3}},
                             {"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}}}},
                  {.shapes = {{kBatch, 1, 4, 6}},
                   .attrs = {{"kernel", std::int64_t{2}}, {"stride", std::int64_t{2}}}},
                  {.shapes = {{1, 2, 3, 3}}, .attrs = {{"kernel", std::int64_t{2}}}}},
      .images = {{0}, {0, 1}},
      .narrow = {NarrowArgs::Rule::Follows},
  };
}

OpDef max_pool2d_grad() {
  return {
      .name = "max_pool2d_grad",
      .doc = "dy added at each window's index, in the order of windows, 0 elsewhere.",
      .inputs = {"dy", "index"},
      .outputs = {"dx"},
      .attrs = {{"kernel", std::int64_t{2}, true, "height and width of the window"},
                {"stride", std::int64_t{1}, false, "step between windows, in both directions"},
                {"padding", std::int64_t{0}, false, "rows and columns around x"},
                kHeight,
                kWidth},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Float32);
        check_dtype(a, 1, DType::Int32);
        check_images(a, 0);
        check_shape(a, 1, a.inputs[0].shape, to_fit(a, 0));
        Shape x = a.inputs[0].shape;
        x[2] = a.attrs.integer("height");
        x[3] = a.attrs.integer("width");
        for (std::size_t axis = 2; axis < 4; ++axis) {
          check(x[axis] >= 1, a, "height and width must be >= 1, got {} x {}", x[2], x[3]);
          const std::int64_t windows = window_count(a, x[axis], a.attrs.integer("kernel"));
          check(windows == a.inputs[0].shape[axis], a,
                "dy has {} windows on axis {}, but x {} gives {}", a.inputs[0].shape[axis], axis,
                to_string(x), windows);
        }
        return {float32(x)};
      },
      .samples = {{.shapes = {{2, 3, 3, 2}, {2, 3, 3, 2}},
                   .attrs = {{"kernel", std::int64_t{3}},
                             {"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
                             {"height", std::int64_t{5}},
                             {"width", std::int64_t{4}}},
                   .dtypes = {DType::Float32, DType::Int32},
                   .integers_below = 4}},
      .images = {{0, 1}, {0}},
      .narrow = {NarrowArgs::Rule::Follows},
  };
}

OpDef global_avg_pool() {
  return {
      .name = "global_avg_pool",
      .doc = "The mean of each plane: [N, C, H, W] to [N, C].",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        return {float32({a.inputs[0].shape[0], a.inputs[0].shape[1]})};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Shape& x = b.type(g.inputs[0]).shape;
        return {if_wanted(g.wanted[0], b, "global_avg_pool_grad", {g.dy[0]},
                          {{"height", x[2]}, {"width", x[3]}})};
      },
      .flops = [](const InferArgs& a) { return elements(a.inputs[0]); },
      .samples = {{.shapes = {{2, 3, 5, 4}}}, {.shapes = {{kBatch, 4, 1, 1}}}},
      .images = {{0}, {}},
      .narrow = {NarrowArgs::Rule::Follows, {}, {0}},
  };
}

OpDef global_avg_pool_grad() {
  return {
      .name = "global_avg_pool_grad",
      .doc = "dy / (height * width) at every element of a plane.",
      .inputs = {"dy"},
      .outputs = {"dx"},
      .attrs = {kHeight, kWidth},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        const Shape& dy = a.inputs[0].shape;
        const std::int64_t height = a.attrs.integer("height"), width = a.attrs.integer("width");
        check(dy.size() == 2, a, "dy must be [N, C], got {}", to_string(a.inputs[0]));
        check(height >= 1 && width >= 1, a, "height and width must be >= 1, got {} and {}", height,
              width);
        return {float32({dy[0], dy[1], height, width})};
      },
      .samples = {{.shapes = {{2, 3}},
                   .attrs = {{"height", std::int64_t{5}}, {"width", std::int64_t{4}}}},
                  {.shapes = {{kBatch, 4}},
                   .attrs = {{"height", std::int64_t{1}}, {"width", std::int64_t{1}}}}},
      .images = {{}, {0}},
      .narrow = {NarrowArgs::Rule::Follows},
  };
}

// Returns the record of a layout change. Only the layout pass creates such nodes, at the edges of a
// network.
OpDef reorder(const std::string& name, const std::string& doc) {
  return {.name = name,
          .doc = doc,
          .inputs = {"x"},
          .infer = [](const InferArgs& a) -> std::vector<TensorType> {
            check_images(a, 0);
            return {a.inputs[0]};
          },
          .flops = [](const InferArgs&) { return std::int64_t{0}; },
          .samples = {{.shapes = {{2, 3, 5, 4}}}, {.shapes = {{kBatch, 4, 1, 7}}}},
          .narrow = {NarrowArgs::Rule::Follows}};
}

}  // namespace

std::vector<OpDef> pool() {
  return {
      reorder(
          "channels_last",
          "Plain images x, rearranged as [N, H, W, C] in memory. Created by the layout pass only."),
      reorder("plain",
              "Channels-last images x, rearranged as [N, C, H, W] in memory. Created by the layout "
              "pass only."),
      max_pool2d(),
      max_pool2d_grad(),
      global_avg_pool(),
      global_avg_pool_grad()};
}

}  // namespace hetu::def
