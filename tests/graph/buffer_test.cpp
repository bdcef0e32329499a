// Tests buffers. A buffer has one reader, which replaces it. Passes, text and checks keep both the
// read and the replacement.
#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/passes/dead.h"
#include "graph/passes/fold.h"
#include "ops/registry.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const Initializer kOne = {Initializer::Kind::Constant, 1, 0};

// Returns two batch norms in two blocks, a counter, and a buffer that nothing reads.
Builder norms() {
  Builder b(op_set());
  ValueId x = b.placeholder("x", DType::Float32, {kBatch, 2, 3, 3});
  for (const char* name : {"a", "b"}) {
    b.cut();
    const Scope scope(b, name);
    const ValueId gamma = b.parameter("gamma", {2}, kOne), beta = b.parameter("beta", {2}, {});
    const ValueId mean = b.buffer("mean", {2}, {}), variance = b.buffer("var", {2}, kOne);
    b.apply("count_up", {b.buffer("count", {}, {})});
    x = b.apply("batch_norm", {x, gamma, beta, mean, variance});
  }
  b.buffer("unread", {5}, {});
  const ValueId loss = b.apply("sum", {b.apply("mul", {x, x})});
  b.fetch("loss", loss);
  b.differentiate(loss);
  return b;
}

TEST(Buffers, AreReplacedByTheirReader) {
  const Graph g = norms().finish();
  ASSERT_EQ(g.buffers.size(), 7U);
  EXPECT_EQ(g.buffers[0].name, "a/mean");
  EXPECT_EQ(g.producer(g.buffers[0].next).op, "batch_norm");
  EXPECT_EQ(g.values[g.buffers[0].next].output, 3);
  EXPECT_EQ(g.values[g.buffers[1].next].output, 4);
  EXPECT_EQ(g.producer(g.buffers[2].next).op, "count_up");
  EXPECT_EQ(g.buffers[6].next, kNone);
  check_types(op_set(), g);
}

TEST(Buffers, PassesKeepWhatReplacesThemAndDropTheUnread) {
  const Graph g = remove_dead(fold(norms().finish()));
  ASSERT_EQ(g.buffers.size(), 6U);
  for (const StateBuffer& b : g.buffers) EXPECT_NE(b.next, kNone) << b.name;
}

TEST(Buffers, TextComesBack) {
  const std::string text = print_graph(norms().finish());
  EXPECT_THAT(text, HasSubstr("buffer \"b/var\"() {a=1.0, b=0.0, init=\"constant\"}"));
  EXPECT_THAT(text, HasSubstr("replace \"b/var\" %"));
  EXPECT_EQ(print_graph(parse_graph(text)), text);
  EXPECT_THAT([&] { parse_graph(text + "replace \"c\" %1\n"); },
              ThrowsMessage<Error>(HasSubstr("the name of a buffer before a value")));
}

TEST(Buffers, DamagedTextIsRefused) {
  const std::string text = print_graph(norms().finish());
  const std::string alphabet = "%:[]{}()@,=\"0123456789abuffer.\n";
  std::mt19937 random(5);
  int read = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = text;
    damaged[random() % damaged.size()] = alphabet[random() % alphabet.size()];
    try {
      parse_graph(damaged);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::InvalidArgument) << "seed 5 round " << round << error.what();
    }
  }
  EXPECT_GT(read, 5);
  EXPECT_LT(read, 400);
}

TEST(Buffers, ErrorsOfTheBuilder) {
  const auto says = [](const char* text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  const auto reading = [](const char* op, int times) {
    Builder b(op_set());
    const ValueId n = b.buffer("n", {}, {});
    for (int i = 0; i < times; ++i) b.apply(op, {n});
  };
  EXPECT_THAT([&] { reading("count_up", 2); }, says("buffer 'n' is read more than once"));
  EXPECT_THAT([&] { reading("relu", 1); }, says("relu 'relu': input 0 is the buffer 'n', but "
                                                "operator relu does not update a buffer there"));
  EXPECT_THAT([] { Builder(op_set()).buffer("n", {kBatch}, {}); },
              says("buffer 'n': shape [B] must not depend on the batch"));
}

TEST(Buffers, ChecksFindAForeignReader) {
  Graph g = norms().finish();
  g.buffers[2].next = g.buffers[0].next;  // a value of another type
  EXPECT_THAT([&] { check_graph(g); },
              ThrowsMessage<Error>(HasSubstr("a buffer's next value has another type")));
  g = norms().finish();
  g.buffers[0].next = g.buffers[3].next;  // the value of the other block's norm
  EXPECT_THAT([&] { check_graph(g); },
              ThrowsMessage<Error>(HasSubstr("reads a buffer that it does not replace")));
}

}  // namespace
}  // namespace hetu
