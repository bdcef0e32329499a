// Larger shapes than the records' samples, chosen so that every path of the fast kernels is taken:
// whole and partial vectors, blocks, groups and strips, and enough elements to wake a second
// thread.
#pragma once
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace hetu::test {

struct KernelCase {
  std::string op;
  Sample sample;
};

inline std::vector<KernelCase> kernel_cases() {
  const DType f = DType::Float32, i = DType::Int32;
  const Attrs heads = {{"heads", std::int64_t{3}}};
  const Attrs dropped = {{"heads", std::int64_t{2}}, {"dropout", 0.3}};
  const Attrs dropped_grad = {
      {"heads", std::int64_t{2}}, {"dropout", 0.3}, {"key", std::string("grid/node")}};
  const Attrs plain_grad = {
      {"heads", std::int64_t{3}}, {"dropout", 0.0}, {"key", std::string("grid/node")}};
  std::vector<KernelCase> cases = {
      {"linear", {{{4, 33, 70}, {130, 70}, {130}}, {}}},
      {"linear", {{{64, 96}, {257, 96}}, {}}},
      {"linear_input_grad", {{{4, 33, 130}, {130, 70}}, {}}},
      {"linear_weight_grad", {{{4, 33, 70}, {4, 33, 130}}, {}}},
      {"matmul",
       {{{3, 2, 33, 20}, {3, 2, 20, 17}},
        {{"transpose_a", std::int64_t{0}}, {"transpose_b", std::int64_t{0}}}}},
      {"matmul",
       {{{65, 33}, {65, 17}},
        {{"transpose_a", std::int64_t{1}}, {"transpose_b", std::int64_t{0}}}}},
      {"matmul",
       {{{2, 33, 65}, {2, 17, 65}},
        {{"transpose_a", std::int64_t{0}}, {"transpose_b", std::int64_t{1}}}}},
      {"sum", {{{7, 10001}}, {}}},
      {"sum_rows", {{{131, 300}}, {}}},
      {"sum_rows", {{{67, 5003}}, {}}},
      {"embedding", {{{50, 160}, {4, 40}}, {}, {f, i}, 50}},
      {"embedding_grad", {{{4, 40}, {4, 40, 160}}, {{"rows", std::int64_t{151}}}, {i, f}, 50}},
      {"layer_norm", {{{6, 11, 768}, {768}, {768}}, {}}},
      {"layer_norm_input_grad", {{{66, 259}, {259}, {66}, {66}, {66, 259}}, {}}},
      {"layer_norm_gamma_grad", {{{130, 259}, {130}, {130}, {130, 259}}, {}}},
      {"softmax", {{{40, 515}}, {}}},
      {"softmax_grad", {{{40, 515}, {40, 515}}, {}}},
      {"dropout", {{{kBatch, 29, 131}}, {{"p", 0.1}}}},
      {"dropout_grad", {{{kBatch, 29, 331}}, {{"p", 0.1}, {"key", std::string("grid/node")}}}},
      {"attention", {{{2, 37, 96}, {2, 37, 96}, {2, 37, 96}, {2, 37}}, heads, {f, f, f, i}, 2}},
      {"attention",
       {{{2, 140, 64}, {2, 140, 64}, {2, 140, 64}, {2, 140}}, dropped, {f, f, f, i}, 2}},
      {"attention_grad",
       {{{2, 37, 96}, {2, 37, 96}, {2, 37, 96}, {2, 3, 37, 37}, {2, 37, 96}}, plain_grad}},
      {"attention_grad",
       {{{2, 140, 64}, {2, 140, 64}, {2, 140, 64}, {2, 2, 140, 140}, {2, 140, 64}}, dropped_grad}},
      {"softmax_cross_entropy", {{{23, 5003}, {23}}, {}, {f, i}, 5003, true}},
      {"softmax_cross_entropy_grad", {{{23, 5003}, {23}, {23}, {}}, {}, {f, i, f, f}, 5003, true}},
  };
  for (const char* op : {"relu", "gelu", "tanh"}) {
    cases.push_back({op, {{{33, 701}}, {}}});
    cases.push_back({std::string(op) + "_grad", {{{33, 701}, {33, 701}}, {}}});
  }
  for (const char* op : {"add", "sub", "mul"}) cases.push_back({op, {{{33, 701}, {33, 701}}, {}}});
  cases.push_back({"scale", {{{33, 701}}, {{"factor", 0.3}}}});
  return cases;
}

}  // namespace hetu::test
