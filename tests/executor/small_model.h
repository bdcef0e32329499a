// A small language model with the features that are hard for pipelines: an embedding tied to the
// decoder, dropout, norms, a skip over several blocks, and counts that depend on the data. Shared
// by the executor's tests.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "ops/registry.h"

namespace hetu::testing_model {

struct Sizes {
  int blocks = 4;
  int length = 6;
  int width = 8;
  int vocabulary = 17;
  bool tied = true;
  bool skip = false;  ///< the head adds the embedding's output again
  bool norms = true;  ///< if false, a block only adds to its input: x + f(x)
  double dropout = 0.2;
  bool served = false;  ///< the embedding lies on parameter servers
};

inline ValueId dense(Builder& b, ValueId x, int in, int out, const std::string& name) {
  const ValueId w = b.parameter(name + ".weight", {out, in}, {Initializer::Kind::Normal, 0, 0.2});
  const ValueId bias =
      b.parameter(name + ".bias", {out}, {Initializer::Kind::Constant, 0, 0}, false);
  return b.apply("linear", {x, w, bias}, {}, name);
}

inline Graph language_model(const Sizes& s, bool differentiate = true) {
  Builder b(op_set());
  const ValueId ids = b.placeholder("ids", DType::Int32, {kBatch, s.length});
  const ValueId labels = b.placeholder("labels", DType::Int32, {kBatch, s.length});
  const ValueId table =
      b.parameter("embedding", {s.vocabulary, s.width}, {Initializer::Kind::Normal, 0, 0.3},
                  /*decay=*/true, s.served);
  const ValueId embedded = b.apply("embedding", {table, ids}, {}, "embed");
  ValueId x = embedded;
  for (int i = 0; i < s.blocks; ++i) {
    if (i > 0) b.cut();
    const std::string at = "block" + std::to_string(i);
    ValueId h = b.apply("gelu", {dense(b, x, s.width, 2 * s.width, at + ".up")}, {}, at + ".act");
    h = dense(b, h, 2 * s.width, s.width, at + ".down");
    if (s.dropout > 0) h = b.apply("dropout", {h}, {{"p", s.dropout}}, at + ".dropout");
    x = b.apply("add", {h, x}, {}, at + ".add");
    if (!s.norms) continue;
    const ValueId gamma =
        b.parameter(at + ".gamma", {s.width}, {Initializer::Kind::Constant, 1, 0}, false);
    const ValueId beta =
        b.parameter(at + ".beta", {s.width}, {Initializer::Kind::Constant, 0, 0}, false);
    x = b.apply("layer_norm", {x, gamma, beta}, {}, at + ".norm");
  }
  if (s.skip) x = b.apply("add", {x, embedded}, {}, "skip");
  const ValueId rows =
      b.apply("reshape", {x}, {{"shape", std::vector<std::int64_t>{-s.length, s.width}}}, "rows");
  const ValueId flat = b.apply("reshape", {labels},
                               {{"shape", std::vector<std::int64_t>{-s.length}}}, "labels_rows");
  ValueId decoder = table;
  if (!s.tied)
    decoder = b.parameter("decoder", {s.vocabulary, s.width}, {Initializer::Kind::Normal, 0, 0.2});
  const ValueId logits = b.apply("linear", {rows, decoder}, {}, "logits");
  const Attrs ignore = {{"ignore", std::int64_t{-1}}};
  const ValueId total = b.apply("softmax_cross_entropy", {logits, flat}, ignore, "cross_entropy");
  const ValueId count =
      b.apply("step_sum", {b.apply("count_labels", {flat}, ignore, "count")}, {}, "step_count");
  const ValueId loss = b.apply("div_scalar", {total, count}, {}, "loss");
  b.fetch("loss", loss);
  if (differentiate) b.differentiate(loss);
  return b.finish();
}

/// The global batch of a step: token ids, and labels of which about a third are -1 (ignored).
struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

inline Tokens tokens(const Sizes& s, int rows, int step, std::uint64_t seed = 7) {
  std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(step));
  Tokens t;
  for (int i = 0; i < rows * s.length; ++i) {
    t.ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(s.vocabulary)));
    const bool ignored = random() % 3 == 0;
    t.labels.push_back(
        ignored ? -1
                : static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(s.vocabulary)));
  }
  return t;
}

}  // namespace hetu::testing_model
