// Larger shapes than the records' samples. They are chosen so that every path of the fast kernels
// runs: whole and partial vectors, blocks, groups and strips, and enough elements for a second
// thread.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace hetu::test {

struct KernelCase {
  std::string op;
  Sample sample;
};

inline void add_convolutions(std::vector<KernelCase>& cases) {
  const auto windows = [](std::int64_t stride, std::int64_t padding, std::int64_t height,
                          std::int64_t width) -> Attrs {
    return {{"stride", stride}, {"padding", padding}, {"height", height}, {"width", width}};
  };
  const Attrs half = {{"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}};
  const Attrs stem = {{"stride", std::int64_t{2}}, {"padding", std::int64_t{3}}};
  cases.push_back({"conv2d", {{{2, 3, 33, 30}, {16, 3, 7, 7}}, stem}});
  cases.push_back({"conv2d", {{{2, 32, 15, 14}, {48, 32, 3, 3}}, half}});
  const Attrs dense = {{"stride", std::int64_t{1}}};
  cases.push_back({"conv2d", {{{2, 32, 9, 7}, {48, 32, 1, 1}}, dense}});
  cases.push_back({"conv2d_weight_grad", {{{2, 32, 9, 7}, {2, 48, 9, 7}}, windows(1, 0, 1, 1)}});
  cases.push_back({"conv2d_input_grad", {{{2, 48, 8, 7}, {48, 32, 3, 3}}, windows(2, 1, 15, 14)}});
  cases.push_back({"conv2d_input_grad", {{{2, 64, 9, 9}, {64, 32, 1, 1}}, windows(1, 0, 9, 9)}});
  cases.push_back({"conv2d_weight_grad", {{{2, 3, 33, 30}, {2, 16, 17, 15}}, windows(2, 3, 7, 7)}});
  cases.push_back({"conv2d_weight_grad", {{{2, 32, 15, 14}, {2, 48, 8, 7}}, windows(2, 1, 3, 3)}});
  // One and many channels per group, and dilated windows.
  for (const std::int64_t groups : {2, 32})
    for (const std::int64_t dilation : {1, 2}) {
      Attrs attrs = {{"padding", dilation}, {"groups", groups}, {"dilation", dilation}};
      const Shape x = {3, 32, 9, 7}, y = {3, 64, 9, 7}, w = {64, 32 / groups, 3, 3};
      cases.push_back({"conv2d", {{x, w, {64}}, attrs}});
      cases.push_back({"conv_transpose2d", {{y, w, {32}}, attrs}});
      for (const char* name : {"height", "width"}) attrs.set(name, std::int64_t{3});
      cases.push_back({"conv2d_weight_grad", {{x, y}, attrs}});
      attrs.set("height", std::int64_t{9});
      attrs.set("width", std::int64_t{7});
      cases.push_back({"conv2d_input_grad", {{y, w}, attrs}});
    }
  cases.push_back({"conv2d", {{{2, 32, 9, 7}, {48, 32, 1, 1}, {48}}, dense}});
  // Windows of 3 x 3 in whole and partial tiles of 4 x 4, and sums over two steps of the depth.
  // winograd_test.cpp has more cases.
  for (const auto& [n, from, to, side, padding] : {std::array<std::int64_t, 5>{2, 32, 48, 9, 1},
                                                   {1, 48, 32, 10, 0},
                                                   {3, 32, 32, 7, 2},
                                                   {1, 304, 32, 8, 1}}) {
    const std::int64_t made = side + 2 * padding - 2;
    const Shape x = {n, from, side, side - 1}, y = {n, to, made, made - 1}, w = {to, from, 3, 3};
    cases.push_back({"conv2d", {{x, w, {to}}, {{"padding", padding}}}});
    cases.push_back({"conv2d_input_grad", {{y, w}, windows(1, padding, side, side - 1)}});
    cases.push_back({"conv2d_weight_grad", {{x, y}, windows(1, padding, 3, 3)}});
  }
  // Groups of samples, slices of channels, both, and neither.
  for (const std::int64_t n : {1, 3, 17, 37}) {
    cases.push_back({"conv2d", {{{n, 16, 6, 5}, {48, 16, 3, 3}}, half}});
    cases.push_back({"conv2d_input_grad", {{{n, 48, 3, 3}, {48, 32, 3, 3}}, windows(2, 1, 6, 5)}});
    cases.push_back({"conv2d_weight_grad", {{{n, 16, 6, 5}, {n, 48, 3, 3}}, windows(2, 1, 3, 3)}});
  }
  cases.push_back({"conv2d_weight_grad", {{{16, 8, 9, 9}, {16, 24, 9, 9}}, windows(1, 1, 3, 3)}});
  cases.push_back({"conv2d_weight_grad", {{{2, 256, 3, 3}, {2, 512, 3, 3}}, windows(1, 1, 3, 3)}});
}

inline void add_channels(std::vector<KernelCase>& cases) {
  for (const Shape& x : {Shape{4, 64, 14, 14}, Shape{3, 17, 30, 30}}) {  // several blocks of pixels
    const Shape one = {x[1]};
    cases.push_back({"batch_norm", {{x, one, one, one, one}, {}}});
    cases.push_back({"batch_norm_grad", {{x, one, one, one, x}, {{"epsilon", 5.0}}}});
    cases.push_back({"batch_norm_relu", {{x, one, one, one, one}, {}}});
    cases.push_back({"batch_norm_add_relu", {{x, one, one, one, one, x}, {}}});
    cases.push_back({"batch_norm_relu_grad", {{x, one, one, one, one, x}, {{"epsilon", 5.0}}}});
    cases.push_back(
        {"batch_norm_add_relu_grad", {{x, one, one, one, x, x, x}, {{"epsilon", 5.0}}}});
    cases.push_back({"global_avg_pool", {{x}, {}}});
    cases.push_back({"max_pool2d",
                     {{x},
                      {{"kernel", std::int64_t{3}},
                       {"stride", std::int64_t{2}},
                       {"padding", std::int64_t{1}}}}});
    cases.push_back({"relu", {{x}, {}}});
    cases.push_back({"channels_last", {{x}, {}}});
    cases.push_back({"plain", {{x}, {}}});
  }
  for (const Shape& x : {Shape{3, 3, 17, 19}, Shape{5, 1, 6, 6}, Shape{2, 7, 9, 3}})
    cases.push_back({"channels_last", {{x}, {}}});
}

// Elementwise operators cover rows that are shorter and longer than a chunk, a broadcast on either
// side, and more elements than one thread takes. Reductions cover whole and partial strips of
// outputs, and runs of neighbouring elements.
inline void add_broadcasts(std::vector<KernelCase>& cases) {
  const DType f = DType::Float32, i = DType::Int32, t = DType::Bool;
  for (const char* op : {"add", "mul", "div", "maximum"})
    for (const std::vector<Shape>& shapes :
         std::vector<std::vector<Shape>>{{{33, 701}, {701}},
                                         {{33, 1}, {33, 701}},
                                         {{5, 9001}, {}},
                                         {{1, 9001}, {5, 1}},
                                         {{7, 1, 3, 401}, {19, 1, 401}},
                                         {{4, 64, 14, 14}, {1, 64, 1, 1}}})
      cases.push_back({op, {.shapes = shapes, .positive = true}});
  cases.push_back({"where", {{{33, 701}, {33, 701}, {}}, {}, {t, f, f}, 2}});
  cases.push_back({"where", {{{701}, {33, 1, 701}, {3, 1}}, {}, {t, f, f}, 2}});
  cases.push_back({"less", {{{33, 701}, {33, 701}}, {}}});
  cases.push_back({"greater_equal", {{{33, 1}, {701}}, {}, {i, i}, 4}});
  const auto over = [](const Shape& axes, std::int64_t keep) -> Attrs {
    return {{"axes", axes}, {"keep", keep}};
  };
  for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_variance",
                         "reduce_logsumexp"}) {
    cases.push_back({op, {{{131, 300}}, over({0}, 0)}});
    cases.push_back({op, {{{131, 300}}, over({1}, 1)}});
    cases.push_back({op, {{{6, 64, 9, 11}}, over({0, 2, 3}, 1)}});
    cases.push_back({op, {{{3, 7, 5, 67, 2}}, over({1, 3}, 0)}});
    cases.push_back({op, {{{40001}}, over({}, 0)}});
  }
  const auto part = [](std::int64_t first, std::int64_t size, std::int64_t step) -> Attrs {
    return {{"first", first}, {"size", size}, {"step", step}};
  };
  cases.push_back({"slice", {{{131, 300}}, part(3, 250, 1)}});
  cases.push_back({"slice", {{{131, 300}}, part(1, 150, 2)}});
  cases.push_back(
      {"slice_grad", {{{131, 250}}, {{"first", std::int64_t{3}}, {"width", std::int64_t{300}}}}});
  cases.push_back({"concat", {{{131, 300}, {131, 1}, {131, 17}}, {}}});
  cases.push_back({"cumsum", {{{5, 131, 67}}, {{"axis", std::int64_t{1}}}}});
  cases.push_back({"top_k", {{{37, 501}}, {{"k", std::int64_t{9}}}}});
  cases.push_back({"argmax", {{{37, 501}}, {}}});
  cases.push_back({"reduce_logsumexp", {{{2, 0, 3}}, over({1}, 0)}});  // -infinity
  cases.push_back({"broadcast_to", {{{33, 1}}, {{"shape", Shape{5, 33, 701}}}}});
  cases.push_back({"broadcast_to", {{{5, 1, 9001}}, {{"shape", Shape{5, 3, 9001}}}}});
}

// Covers blocks of queries that see all keys, some keys and none, and a key head that two query
// heads share.
inline void add_sequences(std::vector<KernelCase>& cases) {
  const DType f = DType::Float32, t = DType::Bool;
  const auto attrs = [](std::int64_t causal, std::int64_t window, double dropout) -> Attrs {
    return {{"heads", std::int64_t{4}}, {"kv_heads", std::int64_t{2}},
            {"causal", causal},         {"window", window},
            {"dropout", dropout},       {"key", std::string("grid/node")}};
  };
  const auto forward = [&](Shape q, Shape k, std::vector<Shape> mask, DType dtype, const Attrs& a) {
    Sample s{{q, k, k}, {}, {f, f, f, dtype}, 2};
    for (const auto& [name, value] : a.items())
      if (name != "key") s.attrs.set(name, value);
    s.shapes.insert(s.shapes.end(), mask.begin(), mask.end());
    s.dtypes.resize(s.shapes.size());
    cases.push_back({"attention", s});
    cases.push_back({"fused_attention", s});
  };
  for (const auto& [causal, window] : {std::pair{1, 0}, {1, 40}, {0, 9}}) {
    const Shape x = {2, 140, 64}, kv = {2, 140, 32}, few = {2, 37, 64}, few_kv = {2, 37, 32};
    const Attrs a = attrs(causal, window, 0.0), drops = attrs(causal, window, 0.3);
    forward(x, kv, {}, f, drops);
    forward(x, few_kv, {{2, 1, 140, 37}}, t, a);
    forward(few, kv, {{1, 4, 37, 140}}, f, a);
    const Shape stats = {2, 4, 140, 2}, few_stats = {2, 4, 37, 2};
    const auto masked = [&](std::vector<Shape> shapes, DType mask) {
      return Sample{std::move(shapes), drops, {f, f, f, f, f, f, mask}, 2};
    };
    cases.push_back({"fused_attention_grad", {{x, kv, kv, stats, x, x}, drops}});
    cases.push_back({"fused_attention_grad", {{few, kv, kv, few_stats, few, few}, a}});
    cases.push_back({"fused_attention_grad",
                     masked({few, few_kv, few_kv, few_stats, few, few, {2, 37}}, DType::Int32)});
    cases.push_back(
        {"fused_attention_grad", masked({x, few_kv, few_kv, stats, x, x, {2, 1, 140, 37}}, t)});
    cases.push_back(
        {"fused_attention_grad", masked({few, kv, kv, few_stats, few, few, {1, 4, 37, 140}}, f)});
    cases.push_back({"attention_grad", {{x, kv, kv, {2, 4, 140, 140}, x, x}, drops}});
    cases.push_back({"attention_grad", {{few, kv, kv, {2, 4, 37, 140}, few, few}, a}});
    cases.push_back({"attention_scores_grad", {{x, few_kv, {2, 4, 140, 37}}, drops}});
  }
  // whole blocks of samples, and a partial block
  const Shape state = {13, 32}, every = {13, 4, 32}, gates = {13, 4, 128};
  cases.push_back({"lstm", {{gates, {128, 32}, state, state}}});
  cases.push_back({"lstm_grad", {{{128, 32}, state, every, gates, every, every}}});
  cases.push_back({"gru", {{{13, 4, 96}, {96, 32}, {96}, state}}});
  cases.push_back({"gru_grad", {{{96, 32}, state, every, gates, every}}});
  const Attrs two = {{"heads", std::int64_t{2}}};
  cases.push_back({"rotary", {{{3, 70, 128}}, two}});
  cases.push_back({"rotary", {{{3, 70, 128}, {3, 70}}, two, {f, DType::Int32}, 2000}});
}

inline Attrs windows(std::int64_t size, std::int64_t stride, std::int64_t padding,
                     std::int64_t dilation) {
  return {{"height", size},     {"width", size},        {"stride", stride},
          {"padding", padding}, {"dilation", dilation}, {"mean", std::int64_t{1}}};
}

inline void add_products(std::vector<KernelCase>& cases) {
  cases.insert(
      cases.end(),
      {
          {"linear", {{{4, 33, 70}, {130, 70}, {130}}, {}}},
          {"linear", {{{64, 96}, {257, 96}}, {}}},
          {"linear", {{{2900, 384}, {20, 384}}, {}}},          // slabs of rows
          {"linear", {{{10, 40}, {3100, 40}, {3100}}, {}}},    // slabs of columns
          {"linear", {{{1500, 1100}, {20, 1100}, {20}}, {}}},  // slabs of depth
          // slabs of columns and depth with one thread; x is read in place
          {"linear", {{{29, 900}, {420, 900}, {420}}, {}}},
          // the same slabs; x is packed, because its rows are 1024 elements apart
          {"linear", {{{29, 1024}, {420, 1024}, {420}}, {}}},
          {"linear_relu", {{{1500, 1100}, {20, 1100}, {20}}, {}}},
          {"linear_gelu", {{{29, 900}, {420, 900}, {420}}, {}}},
          {"linear_gelu_tanh", {{{64, 96}, {257, 96}}, {}}},
          {"linear_input_grad", {{{4, 33, 130}, {130, 70}}, {}}},
          {"linear_input_grad_add", {{{4, 33, 130}, {130, 70}, {4, 33, 70}}, {}}},
          {"linear_input_grad_add", {{{29, 900}, {900, 420}, {29, 420}}, {}}},
          // slabs of all axes
          {"linear_input_grad_add", {{{1500, 1100}, {1100, 20}, {1500, 20}}, {}}},
          {"linear_weight_grad", {{{1500, 70}, {1500, 30}}, {}}},  // sums of chunks
          {"linear_weight_grad", {{{800, 600}, {800, 40}}, {}}},   // slabs of rows with one thread
          {"linear_weight_grad", {{{4, 33, 70}, {4, 33, 130}}, {}}},
          {"linear_weight_grad", {{{130, 200}, {130, 150}}, {}}},  // pairs of bfloat16
          {"linear_weight_bias_grad", {{{1500, 70}, {1500, 30}}, {}}},
          {"linear_weight_bias_grad", {{{4, 33, 70}, {4, 33, 264}}, {}}},  // packs of columns
          {"linear_weight_bias_grad", {{{130, 200}, {130, 150}}, {}}},     // pairs of bfloat16
          {"kronecker_factor", {{{1500, 70}, {70, 70}}, {}}},              // sums of chunks
          {"kronecker_factor", {{{4, 33, 430}, {430, 430}}, {}}},
          // computed in chunks
          {"conv2d_factor", {{{2, 1, 182, 180}, {9, 9}}, windows(3, 1, 1, 1)}},
          {"conv2d_factor", {{{3, 5, 23, 31}, {45, 45}}, windows(3, 2, 1, 1)}},
          {"conv2d_factor", {{{3, 33, 9, 10}, {132, 132}}, windows(2, 1, 0, 3)}},
          {"conv2d_factor", {{{3, 40, 9, 10}, {40, 40}}, windows(1, 1, 0, 1)}},
          {"matmul",
           {{{3, 2, 33, 20}, {3, 2, 20, 17}},
            {{"transpose_a", std::int64_t{0}}, {"transpose_b", std::int64_t{0}}}}},
          {"matmul",
           {{{65, 33}, {65, 17}},
            {{"transpose_a", std::int64_t{1}}, {"transpose_b", std::int64_t{0}}}}},
          {"matmul",
           {{{2, 33, 65}, {2, 17, 65}},
            {{"transpose_a", std::int64_t{0}}, {"transpose_b", std::int64_t{1}}}}},
      });
}

inline void add_rows(std::vector<KernelCase>& cases) {
  const DType f = DType::Float32, i = DType::Int32;
  cases.insert(
      cases.end(),
      {
          {"sum", {{{7, 10001}}, {}}},
          {"sum_rows", {{{131, 300}}, {}}},
          {"sum_rows", {{{67, 5003}}, {}}},
          {"sum_rows", {{{131, 264}}, {}}},
          {"embedding", {{{50, 160}, {4, 40}}, {}, {f, i}, 50}},
          {"embedding_grad", {{{4, 40}, {4, 40, 160}}, {{"rows", std::int64_t{151}}}, {i, f}, 50}},
          {"layer_norm", {{{6, 11, 768}, {768}, {768}}, {}}},
          {"layer_norm_input_grad", {{{66, 259}, {259}, {66}, {66}, {66, 259}}, {}}},
          {"layer_norm_gamma_grad", {{{130, 259}, {130}, {130}, {130, 259}}, {}}},
          {"layer_norm_gamma_grad", {{{130, 264}, {130}, {130}, {130, 264}}, {}}},
          {"softmax", {{{40, 515}}, {}}},
          {"softmax_grad", {{{40, 515}, {40, 515}}, {}}},
          {"dropout", {{{kBatch, 29, 131}}, {{"p", 0.1}}}},
          {"dropout_grad", {{{kBatch, 29, 331}}, {{"p", 0.1}, {"key", std::string("grid/node")}}}},
          {"dropout_add_layer_norm",
           {{{kBatch, 29, 131}, {kBatch, 29, 131}, {131}, {131}},
            {{"p", 0.1}, {"key", std::string("grid/node")}}}},
          {"dropout_add_layer_norm_grad",
           {{{kBatch, 66, 259}, {259}, {kBatch, 66}, {kBatch, 66}, {kBatch, 66, 259}},
            {{"p", 0.1}, {"key", std::string("grid/node")}}}},
      });
}

inline void add_attention_and_losses(std::vector<KernelCase>& cases) {
  const DType f = DType::Float32, i = DType::Int32;
  const Attrs heads = {{"heads", std::int64_t{3}}};
  const Attrs ignore = {{"ignore", std::int64_t{-1}}};
  const Attrs smoothed = {{"smoothing", 0.1}, {"ignore", std::int64_t{-1}}};
  const Attrs dropped = {{"heads", std::int64_t{2}}, {"dropout", 0.3}};
  const Attrs dropped_grad = {
      {"heads", std::int64_t{2}}, {"dropout", 0.3}, {"key", std::string("grid/node")}};
  const Attrs plain_grad = {
      {"heads", std::int64_t{3}}, {"dropout", 0.0}, {"key", std::string("grid/node")}};
  cases.insert(
      cases.end(),
      {
          {"attention", {{{2, 37, 96}, {2, 37, 96}, {2, 37, 96}, {2, 37}}, heads, {f, f, f, i}, 2}},
          {"attention",
           {{{2, 140, 64}, {2, 140, 64}, {2, 140, 64}, {2, 140}}, dropped, {f, f, f, i}, 2}},
          {"attention",
           {{{2, 140, 64}, {2, 140, 64}, {2, 140, 64}, {140, 140}},
            dropped,
            {f, f, f, DType::Bool},
            2}},
          {"attention",
           {{{2, 37, 96}, {2, 37, 96}, {2, 37, 96}, {2, 37, 37}},
            heads,
            {f, f, f, DType::Bool},
            2}},
          {"attention_grad",
           {{{2, 37, 96}, {2, 37, 96}, {2, 37, 96}, {2, 3, 37, 37}, {2, 37, 96}, {2, 37, 96}},
            plain_grad}},
          {"attention_grad",
           {{{2, 140, 64},
             {2, 140, 64},
             {2, 140, 64},
             {2, 2, 140, 140},
             {2, 140, 64},
             {2, 140, 64}},
            dropped_grad}},
          {"softmax_cross_entropy", {{{23, 5003}, {23}}, ignore, {f, i}, 5003, true}},
          {"softmax_cross_entropy_grad",
           {{{23, 5003}, {23}, {23}, {}}, ignore, {f, i, f, f}, 5003, true}},
          {"softmax_cross_entropy", {{{23, 5003}, {23}, {5003}}, smoothed, {f, i, f}, 5003, true}},
          {"softmax_cross_entropy_grad",
           {{{23, 5003}, {23}, {23}, {}, {5003}}, smoothed, {f, i, f, f}, 5003, true}},
          {"softmax_cross_entropy_grad",
           {{{23, 5003}, {23}, {23}, {}}, smoothed, {f, i, f, f}, 5003, true}},
          {"dot_interaction", {{{70, 27, 16}}, {}}},
          {"dot_interaction_grad", {{{70, 27, 16}, {70, 351}}, {}}},
          {"dot_interaction", {{{9, 5, 37}}, {}}},
          {"dot_interaction_grad", {{{9, 5, 37}, {9, 10}}, {}}},
      });
}

inline std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  add_products(cases);
  add_rows(cases);
  add_attention_and_losses(cases);
  add_convolutions(cases);
  add_channels(cases);
  add_sequences(cases);
  add_broadcasts(cases);
  for (const char* op : {"exp", "abs", "sign", "sin", "cos", "sigmoid", "softplus"})
    cases.push_back({op, {{{33, 701}}, {}}});
  for (const char* op : {"log", "sqrt", "rsqrt"})
    cases.push_back({op, {.shapes = {{33, 701}}, .positive = true}});
  cases.push_back({"leaky_relu", {{{33, 701}}, {}}});
  cases.push_back({"clip", {{{33, 701}}, {{"low", -0.5}, {"high", 0.25}}}});
  cases.push_back({"power", {{{33, 701}}, {{"exponent", 3.0}}}});
  for (const char* op : {"relu", "gelu", "tanh", "silu", "gelu_tanh"}) {
    cases.push_back({op, {{{33, 701}}, {}}});
    cases.push_back({std::string(op) + "_grad", {{{33, 701}, {33, 701}}, {}}});
  }
  for (const char* op : {"add", "sub", "mul"}) cases.push_back({op, {{{33, 701}, {33, 701}}, {}}});
  cases.push_back({"scale", {{{33, 701}}, {{"factor", 0.3}}}});
  return cases;
}

}  // namespace hetu::test
