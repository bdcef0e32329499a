// Convolution of images [N, C, H, W], its gradients, its K-FAC factors, and transposed convolution.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const AttrSpec kStride = {"stride", std::int64_t{1}, false,
                          "step between windows, in both directions"};
const AttrSpec kPadding = {"padding", std::int64_t{0}, false, "rows and columns of zeros around x"};
const AttrSpec kGroups = {"groups", std::int64_t{1}, false,
                          "groups of channels; each group of outputs reads one group of inputs"};
const AttrSpec kDilation = {"dilation", std::int64_t{1}, false,
                            "step between the elements of a window, in both directions"};

// Returns the number of elements that a dilated window spans along an axis. Checks the dilation.
std::int64_t span(const InferArgs& a, std::int64_t kernel) {
  const std::int64_t dilation = a.attrs.integer("dilation");
  check(dilation >= 1, a, "dilation must be >= 1, got {}", dilation);
  return dilation * (kernel - 1) + 1;
}

// Returns the shape of conv2d's output for these images and weights.
Shape conv_output(const InferArgs& a, const Shape& x, const Shape& w) {
  const std::int64_t kernel[] = {w[2], w[3]};
  Shape y = {x[0], w[0], 0, 0};
  for (int axis = 0; axis < 2; ++axis) {
    y[2 + axis] = window_count(a, x[2 + axis], span(a, kernel[axis]));
  }
  return y;
}

std::int64_t groups_of(const InferArgs& a, std::int64_t inputs, std::int64_t outputs) {
  const std::int64_t groups = a.attrs.integer("groups");
  check(groups >= 1 && inputs % groups == 0 && outputs % groups == 0, a,
        "groups must divide {} channels of x and {} of y, got {}", inputs, outputs, groups);
  return groups;
}

void check_weights(const InferArgs& a, std::size_t i, std::int64_t channels) {
  const Shape& w = a.inputs[i].shape;
  const std::int64_t groups = groups_of(a, channels, w.size() == 4 ? w[0] : 0);
  check(w.size() == 4 && w[1] == channels / groups && w[2] > 0 && w[3] > 0, a,
        "w must be [out, {}, kernel height, kernel width], got {}", channels / groups,
        to_string(a.inputs[i]));
}

void check_bias(const InferArgs& a, std::int64_t channels) {
  if (a.inputs.size() > 2) check_shape(a, 2, {channels}, to_fit(a, 1));
}

// Adds the gradient of the bias, if there is one: dy summed over all axes but the channels.
void add_bias_grad(Builder& b, const GradArgs& g, Values& dx) {
  if (g.inputs.size() < 3) return;
  dx.push_back(if_wanted(g.wanted[2], b, "reduce_sum", {g.dy[0]}, {{"axes", Shape{0, 2, 3}}}));
}

Attrs with_window(Attrs attrs, const Shape& images) {
  attrs.set("height", images[2]);
  attrs.set("width", images[3]);
  return attrs;
}

// Returns the cost of one window product at each of `outputs` elements.
std::int64_t window_flops(std::int64_t outputs, std::int64_t channels, std::int64_t height,
                          std::int64_t width) {
  return 2 * outputs * channels * height * width;
}

OpDef conv2d() {
  return {
      .name = "conv2d",
      .doc =
          "Cross-correlation of x [N, C, H, W] with w [O, C / groups, height, width], plus b [O] "
          "if given, as in PyTorch.",
      .inputs = {"x", "w"},
      .optional_inputs = {"b"},
      .attrs = {kStride, kPadding, kGroups, kDilation},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        check_weights(a, 1, a.inputs[0].shape[1]);
        check_bias(a, a.inputs[1].shape[0]);
        return {float32(conv_output(a, a.inputs[0].shape, a.inputs[1].shape))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Shape &x = b.type(g.inputs[0]).shape, &w = b.type(g.inputs[1]).shape;
        const Attrs of_x = with_window(g.node.attrs, x), of_w = with_window(g.node.attrs, w);
        Values dx = {if_wanted(g.wanted[0], b, "conv2d_input_grad", {g.dy[0], g.inputs[1]}, of_x),
                     if_wanted(g.wanted[1], b, "conv2d_weight_grad", {g.inputs[0], g.dy[0]}, of_w)};
        add_bias_grad(b, g, dx);
        return dx;
      },
      .flops =
          [](const InferArgs& a) {
            const Shape& w = a.inputs[1].shape;
            const TensorType y = float32(conv_output(a, a.inputs[0].shape, w));
            return window_flops(elements(y), w[1], w[2], w[3]);
          },
      .samples = {{.shapes = {{2, 3, 5, 4}, {4, 3, 3, 3}}, .attrs = {{"padding", std::int64_t{1}}}},
                  {.shapes = {{kBatch, 2, 7, 6}, {3, 2, 3, 2}},
                   .attrs = {{"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}}},
                  {.shapes = {{1, 5, 3, 3}, {2, 5, 1, 1}}},
                  {.shapes = {{2, 5, 9, 7}, {3, 5, 3, 2}}, .attrs = {{"stride", std::int64_t{2}}}},
                  {.shapes = {{1, 16, 3, 4}, {2, 16, 3, 3}},
                   .attrs = {{"padding", std::int64_t{1}}}},
                  {.shapes = {{2, 2, 5, 5}, {3, 2, 1, 1}}, .attrs = {{"stride", std::int64_t{2}}}},
                  {.shapes = {{1, 1, 9, 8}, {2, 1, 7, 7}},
                   .attrs = {{"stride", std::int64_t{2}}, {"padding", std::int64_t{3}}}},
                  {.shapes = {{2, 2, 5, 4}, {4, 2, 3, 3}, {4}},
                   .attrs = {{"padding", std::int64_t{2}}, {"dilation", std::int64_t{2}}}},
                  {.shapes = {{kBatch, 6, 5, 6}, {9, 2, 3, 2}, {9}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
                             {"groups", std::int64_t{3}}}},
                  {.shapes = {{2, 4, 6, 5}, {4, 1, 3, 3}},
                   .attrs = {{"groups", std::int64_t{4}}, {"dilation", std::int64_t{2}}}}},
      .images = {{0}, {0}, true},
  };
}

const AttrSpec kHeightOfW = {"height", std::int64_t{0}, true, "height of the window"};
const AttrSpec kWidthOfW = {"width", std::int64_t{0}, true, "width of the window"};

// Checks that dy has the shape of conv2d's output for these images and weights.
void check_dy(const InferArgs& a, std::size_t dy, const Shape& x, const Shape& w) {
  check_shape(a, dy, conv_output(a, x, w), "by stride, padding, height and width");
}

OpDef conv2d_input_grad() {
  return {
      .name = "conv2d_input_grad",
      .doc = "The gradient of conv2d with respect to x.",
      .inputs = {"dy", "w"},
      .outputs = {"dx"},
      .attrs = {kStride, kPadding, kGroups, kDilation, kHeightOfX, kWidthOfX},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        check_images(a, 1);
        const Shape& w = a.inputs[1].shape;
        const std::int64_t channels = w[1] * groups_of(a, 0, w[0]);
        const Shape x = {a.inputs[0].shape[0], channels, a.attrs.integer("height"),
                         a.attrs.integer("width")};
        check_dy(a, 0, x, w);
        return {float32(x)};
      },
      .flops =
          [](const InferArgs& a) {
            const Shape& w = a.inputs[1].shape;
            return window_flops(elements(a.inputs[0]), w[1], w[2], w[3]);
          },
      .samples = {{.shapes = {{2, 4, 5, 4}, {4, 3, 3, 3}},
                   .attrs = {{"padding", std::int64_t{1}},
                             {"height", std::int64_t{5}},
                             {"width", std::int64_t{4}}}},
                  {.shapes = {{1, 2, 3, 4}, {2, 16, 3, 3}},
                   .attrs = {{"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{4}}}},
                  {.shapes = {{kBatch, 3, 4, 4}, {3, 2, 3, 2}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
                             {"height", std::int64_t{7}},
                             {"width", std::int64_t{7}}}},
                  {.shapes = {{2, 6, 3, 3}, {6, 2, 3, 3}},
                   .attrs = {{"groups", std::int64_t{3}},
                             {"dilation", std::int64_t{2}},
                             {"height", std::int64_t{7}},
                             {"width", std::int64_t{7}}}}},
      .images = {{0}, {0}, true},
  };
}

OpDef conv2d_weight_grad() {
  return {
      .name = "conv2d_weight_grad",
      .doc = "The gradient of conv2d with respect to w.",
      .inputs = {"x", "dy"},
      .outputs = {"dw"},
      .attrs = {kStride, kPadding, kGroups, kDilation, kHeightOfW, kWidthOfW},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        check_images(a, 1);
        const std::int64_t in = a.inputs[0].shape[1], out = a.inputs[1].shape[1];
        const Shape w = {out, in / groups_of(a, in, out), a.attrs.integer("height"),
                         a.attrs.integer("width")};
        check_dy(a, 1, a.inputs[0].shape, w);
        return {float32(w)};
      },
      .flops =
          [](const InferArgs& a) {
            const std::int64_t inputs = a.inputs[0].shape[1] / a.attrs.integer("groups");
            return window_flops(elements(a.inputs[1]), inputs, a.attrs.integer("height"),
                                a.attrs.integer("width"));
          },
      .samples = {{.shapes = {{2, 3, 5, 4}, {2, 4, 5, 4}},
                   .attrs = {{"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{3}}}},
                  {.shapes = {{kBatch, 2, 7, 7}, {kBatch, 3, 4, 4}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{2}}}},
                  {.shapes = {{1, 16, 3, 4}, {1, 2, 3, 4}},
                   .attrs = {{"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{3}}}},
                  {.shapes = {{1, 8, 3, 2}, {1, 3, 3, 2}},
                   .attrs = {{"height", std::int64_t{1}}, {"width", std::int64_t{1}}}},
                  {.shapes = {{2, 5, 9, 7}, {2, 3, 4, 3}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{2}}}},
                  {.shapes = {{2, 6, 7, 7}, {2, 6, 3, 3}},
                   .attrs = {{"groups", std::int64_t{3}},
                             {"dilation", std::int64_t{2}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{3}}}}},
      .images = {{0, 1}, {}, true},
  };
}

// As in kronecker_factor, the parameter `inverse` identifies the parameter whose gradient the
// factor is.
OpDef conv2d_factor() {
  return {
      .name = "conv2d_factor",
      .doc =
          "A factor of K-FAC for conv2d (KFC: Grosse, Martens 2016): the sum of p p^T over samples "
          "and windows of x, where p is a window's elements [C, height, width], with zeros outside "
          "x. It is the gradient of the parameter `inverse`, whose values are not read.",
      .inputs = {"x", "inverse"},
      .attrs = {kStride,
                kPadding,
                kDilation,
                kHeightOfW,
                kWidthOfW,
                {"mean", std::int64_t{0}, false, "1: the mean over the windows of a sample"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        const Shape& x = a.inputs[0].shape;
        const std::int64_t height = a.attrs.integer("height"), width = a.attrs.integer("width");
        check(height > 0 && width > 0, a,
              "a window needs at least one row and one column, got {} x {}", height, width);
        window_count(a, x[2], span(a, height));
        window_count(a, x[3], span(a, width));
        const std::int64_t mean = a.attrs.integer("mean"), side = x[1] * height * width;
        check(mean == 0 || mean == 1, a, "mean must be 0 or 1, got {}", mean);
        check_shape(a, 1, {side, side}, "by channels, height and width");
        return {float32({side, side})};
      },
      .flops =
          [](const InferArgs& a) {  // of one triangle, because the factor is symmetric
            const Shape& x = a.inputs[0].shape;
            const std::int64_t side = a.inputs[1].shape[0];
            const std::int64_t windows = window_count(a, x[2], span(a, a.attrs.integer("height"))) *
                                         window_count(a, x[3], span(a, a.attrs.integer("width")));
            return elements(float32({x[0]})) * windows * side * (side + 1);
          },
      .samples = {{.shapes = {{2, 3, 5, 4}, {27, 27}},
                   .attrs = {{"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{3}}}},
                  {.shapes = {{kBatch, 2, 7, 6}, {12, 12}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{2}},
                             {"mean", std::int64_t{1}}}},
                  {.shapes = {{kBatch, 4, 3, 3}, {4, 4}},
                   .attrs = {{"height", std::int64_t{1}}, {"width", std::int64_t{1}}}},
                  {.shapes = {{2, 2, 7, 8}, {18, 18}},
                   .attrs = {{"padding", std::int64_t{2}},
                             {"dilation", std::int64_t{2}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{3}},
                             {"mean", std::int64_t{1}}}}},
      .images = {{0}, {}, false},
  };
}

// Returns the rows or columns of y that windows at `count` positions of x cover, without the
// padding.
std::int64_t covered(const InferArgs& a, std::int64_t count, std::int64_t kernel) {
  const std::int64_t stride = a.attrs.integer("stride"), padding = a.attrs.integer("padding");
  const std::int64_t more = a.attrs.integer("output_padding");
  check(stride >= 1, a, "stride must be >= 1, got {}", stride);
  check(padding >= 0, a, "padding must be >= 0, got {}", padding);
  check(more >= 0 && more < stride, a,
        "output_padding must be in [0, {}), below the stride, got {}", stride, more);
  const std::int64_t size = (count - 1) * stride - 2 * padding + span(a, kernel) + more;
  check(size >= 1, a, "{} windows of {} leave no output after the padding of {} is cut off", count,
        kernel, padding);
  return size;
}

OpDef conv_transpose2d() {
  const auto attrs = [](std::int64_t stride, std::int64_t padding, std::int64_t more,
                        std::int64_t groups, std::int64_t dilation) -> Attrs {
    return {{"stride", stride},
            {"padding", padding},
            {"output_padding", more},
            {"groups", groups},
            {"dilation", dilation}};
  };
  return {
      .name = "conv_transpose2d",
      .doc =
          "The transposed convolution, as in PyTorch: each element of x [N, I, H, W] times its "
          "window of w [I, O / groups, height, width], added where windows overlap, plus b [O] if "
          "given. This is the gradient of conv2d with respect to its input.",
      .inputs = {"x", "w"},
      .optional_inputs = {"b"},
      .attrs = {kStride,
                {"padding", std::int64_t{0}, false, "rows and columns that are cut off around y"},
                {"output_padding", std::int64_t{0}, false,
                 "rows and columns of y after the last window, fewer than the stride"},
                kGroups,
                kDilation},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        check_images(a, 1);
        const Shape &x = a.inputs[0].shape, &w = a.inputs[1].shape;
        check(w[0] == x[1], a, "w must be [{}, out, kernel height, kernel width], got {}", x[1],
              to_string(a.inputs[1]));
        const std::int64_t channels = w[1] * groups_of(a, x[1], 0);
        check_bias(a, channels);
        return {float32({x[0], channels, covered(a, x[2], w[2]), covered(a, x[3], w[3])})};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Attrs of_x;
        for (const char* name : {"stride", "padding", "groups", "dilation"})
          of_x.set(name, g.node.attrs.integer(name));
        const Attrs of_w = with_window(of_x, b.type(g.inputs[1]).shape);
        Values dx = {if_wanted(g.wanted[0], b, "conv2d", {g.dy[0], g.inputs[1]}, of_x),
                     if_wanted(g.wanted[1], b, "conv2d_weight_grad", {g.dy[0], g.inputs[0]}, of_w)};
        add_bias_grad(b, g, dx);
        return dx;
      },
      .flops =
          [](const InferArgs& a) {
            const Shape& w = a.inputs[1].shape;
            return window_flops(elements(a.inputs[0]), w[1], w[2], w[3]);
          },
      .samples = {{.shapes = {{kBatch, 3, 4, 3}, {3, 2, 2, 2}}, .attrs = attrs(2, 0, 0, 1, 1)},
                  {.shapes = {{kBatch, 4, 3, 2}, {4, 3, 3, 2}, {6}}, .attrs = attrs(3, 1, 2, 2, 1)},
                  {.shapes = {{kBatch, 2, 3, 4}, {2, 1, 3, 3}, {2}}, .attrs = attrs(1, 1, 0, 2, 2)},
                  {.shapes = {{kBatch, 1, 1, 1}, {1, 1, 1, 1}}, .attrs = attrs(1, 0, 0, 1, 1)}},
      .images = {{0}, {0}, true},
  };
}

}  // namespace

std::vector<OpDef> conv() {
  return {product_of(conv2d(), {2}), product_of(conv2d_input_grad()),
          product_of(conv2d_weight_grad(), {}, {0}), conv2d_factor(),
          product_of(conv_transpose2d(), {2})};
}

}  // namespace hetu::def
