// Convolution of images [N, C, H, W].
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const AttrSpec kStride = {"stride", std::int64_t{1}, false, "step between windows, both ways"};
const AttrSpec kPadding = {"padding", std::int64_t{0}, false, "rows and columns of zeros around x"};

// The shape of conv2d's result for these images and weights.
Shape conv_output(const InferArgs& a, const Shape& x, const Shape& w) {
  const std::int64_t kernel[] = {w[2], w[3]};
  Shape y = {x[0], w[0], 0, 0};
  for (int axis = 0; axis < 2; ++axis) {
    y[2 + axis] = window_count(a, x[2 + axis], kernel[axis]);
  }
  return y;
}

void want_weights(const InferArgs& a, std::size_t i, std::int64_t channels) {
  const Shape& w = a.inputs[i].shape;
  want(w.size() == 4 && w[1] == channels && w[2] > 0 && w[3] > 0, a,
       "w must be [out, {}, kernel height, kernel width], got {}", channels,
       to_string(a.inputs[i]));
}

// Multiplications and additions of a window at each of `outputs` elements.
std::int64_t window_flops(std::int64_t outputs, std::int64_t channels, std::int64_t height,
                          std::int64_t width) {
  return 2 * outputs * channels * height * width;
}

OpDef conv2d() {
  return {
      .name = "conv2d",
      .doc =
          "Cross-correlation of x [N, C, H, W] with w [O, C, height, width], without bias, as in "
          "PyTorch.",
      .inputs = {"x", "w"},
      .attrs = {kStride, kPadding},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        want_float(a);
        want_images(a, 0);
        want_weights(a, 1, a.inputs[0].shape[1]);
        return {float32(conv_output(a, a.inputs[0].shape, a.inputs[1].shape))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Shape &x = b.type(g.inputs[0]).shape, &w = b.type(g.inputs[1]).shape;
        Attrs of_x = g.node.attrs, of_w = g.node.attrs;
        of_x.set("height", x[2]);
        of_x.set("width", x[3]);
        of_w.set("height", w[2]);
        of_w.set("width", w[3]);
        return {if_wanted(g.wanted[0], b, "conv2d_input_grad", {g.dy[0], g.inputs[1]}, of_x),
                if_wanted(g.wanted[1], b, "conv2d_weight_grad", {g.inputs[0], g.dy[0]}, of_w)};
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
                  {.shapes = {{2, 2, 5, 5}, {3, 2, 1, 1}}, .attrs = {{"stride", std::int64_t{2}}}},
                  {.shapes = {{1, 1, 9, 8}, {2, 1, 7, 7}},
                   .attrs = {{"stride", std::int64_t{2}}, {"padding", std::int64_t{3}}}}},
      .images = {{0}, {0}, true},
  };
}

const AttrSpec kHeightOfX = {"height", std::int64_t{0}, true, "height of x"};
const AttrSpec kWidthOfX = {"width", std::int64_t{0}, true, "width of x"};
const AttrSpec kHeightOfW = {"height", std::int64_t{0}, true, "height of the window"};
const AttrSpec kWidthOfW = {"width", std::int64_t{0}, true, "width of the window"};

// dy must be what conv2d gives for these images and weights.
void want_dy(const InferArgs& a, std::size_t dy, const Shape& x, const Shape& w) {
  want_shape(a, dy, conv_output(a, x, w), "by stride, padding, height and width");
}

OpDef conv2d_input_grad() {
  return {
      .name = "conv2d_input_grad",
      .doc = "The gradient of conv2d with respect to x.",
      .inputs = {"dy", "w"},
      .outputs = {"dx"},
      .attrs = {kStride, kPadding, kHeightOfX, kWidthOfX},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        want_float(a);
        want_images(a, 0);
        want_images(a, 1);
        const Shape& w = a.inputs[1].shape;
        const Shape x = {a.inputs[0].shape[0], w[1], a.attrs.integer("height"),
                         a.attrs.integer("width")};
        want_dy(a, 0, x, w);
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
                  {.shapes = {{kBatch, 3, 4, 4}, {3, 2, 3, 2}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
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
      .attrs = {kStride, kPadding, kHeightOfW, kWidthOfW},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        want_float(a);
        want_images(a, 0);
        want_images(a, 1);
        const Shape w = {a.inputs[1].shape[1], a.inputs[0].shape[1], a.attrs.integer("height"),
                         a.attrs.integer("width")};
        want_dy(a, 1, a.inputs[0].shape, w);
        return {float32(w)};
      },
      .flops =
          [](const InferArgs& a) {
            return window_flops(elements(a.inputs[1]), a.inputs[0].shape[1],
                                a.attrs.integer("height"), a.attrs.integer("width"));
          },
      .samples = {{.shapes = {{2, 3, 5, 4}, {2, 4, 5, 4}},
                   .attrs = {{"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{3}}}},
                  {.shapes = {{kBatch, 2, 7, 7}, {kBatch, 3, 4, 4}},
                   .attrs = {{"stride", std::int64_t{2}},
                             {"padding", std::int64_t{1}},
                             {"height", std::int64_t{3}},
                             {"width", std::int64_t{2}}}}},
      .images = {{0, 1}, {}, true},
  };
}

}  // namespace

std::vector<OpDef> conv() { return {conv2d(), conv2d_input_grad(), conv2d_weight_grad()}; }

}  // namespace hetu::def
