// Changes of image resolution: means of windows, nearest and linear interpolation, for images [N,
// C, H, W].
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

std::vector<AttrSpec> pool_specs() {
  return {
      {"kernel", std::int64_t{2}, true, "height and width of the window"},
      {"stride", std::int64_t{1}, false, "step between windows, in both directions"},
      {"padding", std::int64_t{0}, false, "rows and columns of zeros around x, at most kernel / 2"},
      {"count_padding", std::int64_t{1}, false, "0: the mean does not count the padding"}};
}

// Returns the shape of avg_pool2d's output for images of shape `x`.
Shape pooled(const InferArgs& a, Shape x) {
  const std::int64_t kernel = a.attrs.integer("kernel"), padding = a.attrs.integer("padding");
  check(kernel >= 1, a, "kernel must be >= 1, got {}", kernel);
  check(2 * padding <= kernel, a, "padding must be at most kernel / 2 = {}, got {}", kernel / 2,
        padding);
  for (std::size_t axis = 2; axis < 4; ++axis) x[axis] = window_count(a, x[axis], kernel);
  return x;
}

// Returns the shape of input 0 with height and width replaced by the attributes.
Shape with_size(const InferArgs& a) {
  check_float(a);
  check_images(a, 0);
  Shape x = a.inputs[0].shape;
  x[2] = a.attrs.integer("height");
  x[3] = a.attrs.integer("width");
  check(x[2] >= 1 && x[3] >= 1, a, "height and width must be >= 1, got {} and {}", x[2], x[3]);
  return x;
}

Values images_grad(Builder& b, const GradArgs& g, const std::string& op, Attrs attrs) {
  const Shape& x = b.type(g.inputs[0]).shape;
  attrs.set("height", x[2]);
  attrs.set("width", x[3]);
  return {b.apply(op, {g.dy[0]}, attrs)};
}

Attrs pool_attrs(std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                 std::int64_t count_padding) {
  return {{"kernel", kernel},
          {"stride", stride},
          {"padding", padding},
          {"count_padding", count_padding}};
}

Attrs sized(std::int64_t height, std::int64_t width, Attrs attrs = {}) {
  attrs.set("height", height);
  attrs.set("width", width);
  return attrs;
}

std::int64_t window_flops(const InferArgs& a) {
  const std::int64_t kernel = a.attrs.integer("kernel");
  return elements(a.inputs[0]) * kernel * kernel;
}

OpDef avg_pool2d() {
  return {
      .name = "avg_pool2d",
      .doc = "The mean of each window, with the padding counted as zeros, as in PyTorch.",
      .inputs = {"x"},
      .attrs = pool_specs(),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_images(a, 0);
        return {float32(pooled(a, a.inputs[0].shape))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return images_grad(b, g, "avg_pool2d_grad", g.node.attrs);
      },
      .flops = window_flops,
      .samples = {{.shapes = {{2, 3, 5, 4}}, .attrs = pool_attrs(3, 2, 1, 1)},
                  {.shapes = {{2, 3, 5, 4}}, .attrs = pool_attrs(3, 2, 1, 0)},
                  {.shapes = {{kBatch, 1, 4, 6}}, .attrs = pool_attrs(2, 2, 0, 1)},
                  {.shapes = {{1, 2, 3, 3}}, .attrs = pool_attrs(1, 1, 0, 1)}},
  };
}

OpDef avg_pool2d_grad() {
  std::vector<AttrSpec> specs = pool_specs();
  specs.push_back(kHeightOfX);
  specs.push_back(kWidthOfX);
  return {
      .name = "avg_pool2d_grad",
      .doc = "dy distributed evenly over the elements of its window, added where windows overlap.",
      .inputs = {"dy"},
      .outputs = {"dx"},
      .attrs = specs,
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const Shape x = with_size(a);
        check_shape(a, 0, pooled(a, x), "by kernel, stride, padding, height and width");
        return {float32(x)};
      },
      .flops = window_flops,
      .samples = {{.shapes = {{2, 3, 3, 2}}, .attrs = sized(5, 4, pool_attrs(3, 2, 1, 0))},
                  {.shapes = {{kBatch, 1, 3, 5}}, .attrs = sized(4, 6, pool_attrs(2, 1, 0, 1))}},
  };
}

std::vector<AttrSpec> resize_specs(AttrSpec height, AttrSpec width) {
  return {std::move(height),
          std::move(width),
          {"linear", std::int64_t{0}, false, "1: bilinear interpolation, 0: the nearest element"},
          {"align_corners", std::int64_t{0}, false,
           "1: the centers of the corner elements of x and y coincide; only with linear=1"}};
}

void check_modes(const InferArgs& a) {
  const std::int64_t linear = a.attrs.integer("linear"), align = a.attrs.integer("align_corners");
  check(linear == 0 || linear == 1, a, "linear must be 0 or 1, got {}", linear);
  check(align == 0 || (align == 1 && linear == 1), a,
        "align_corners must be 0, or 1 where linear is 1, got {}", align);
}

Attrs resized(std::int64_t height, std::int64_t width, std::int64_t linear, std::int64_t align) {
  return sized(height, width, {{"linear", linear}, {"align_corners", align}});
}

OpDef resize2d() {
  return {
      .name = "resize2d",
      .doc =
          "Images resized to another height and width, as in PyTorch's interpolate. Pixels are "
          "squares. The outer borders of x and y coincide, or with align_corners the centers of "
          "their corner pixels.",
      .inputs = {"x"},
      .attrs = resize_specs({"height", std::int64_t{0}, true, "height of y"},
                            {"width", std::int64_t{0}, true, "width of y"}),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_modes(a);
        return {float32(with_size(a))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return images_grad(b, g, "resize2d_grad", g.node.attrs);
      },
      .samples = {{.shapes = {{2, 3, 3, 4}}, .attrs = resized(6, 8, 0, 0)},
                  {.shapes = {{kBatch, 2, 5, 4}}, .attrs = resized(3, 7, 0, 0)},
                  {.shapes = {{2, 3, 3, 4}}, .attrs = resized(6, 8, 1, 0)},
                  {.shapes = {{kBatch, 2, 5, 4}}, .attrs = resized(3, 7, 1, 0)},
                  {.shapes = {{2, 1, 3, 4}}, .attrs = resized(5, 1, 1, 1)},
                  {.shapes = {{1, 1, 1, 1}}, .attrs = resized(3, 2, 1, 1)}},
  };
}

OpDef resize2d_grad() {
  return {
      .name = "resize2d_grad",
      .doc =
          "The gradient of resize2d: each dy is distributed to the elements that it was computed "
          "from, by their weights.",
      .inputs = {"dy"},
      .outputs = {"dx"},
      .attrs = resize_specs(kHeightOfX, kWidthOfX),
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_modes(a);
        return {float32(with_size(a))};
      },
      .samples = {{.shapes = {{2, 3, 6, 8}}, .attrs = resized(3, 4, 0, 0)},
                  {.shapes = {{kBatch, 2, 3, 7}}, .attrs = resized(5, 4, 1, 0)},
                  {.shapes = {{2, 1, 5, 1}}, .attrs = resized(3, 4, 1, 1)}},
  };
}

}  // namespace

std::vector<OpDef> resample() {
  return {avg_pool2d(), avg_pool2d_grad(), resize2d(), resize2d_grad()};
}

}  // namespace hetu::def
