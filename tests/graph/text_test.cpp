#include <gmock/gmock.h>

#include <limits>
#include <random>

#include "base/error.h"
#include "tests/graph/evaluate.h"
#include "tests/graph/models.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Text, RoundTrips) {
  for (const Graph& g :
       {mlp().finish(), trained(mlp()), transformer().finish(), trained(transformer())}) {
    const std::string text = print_graph(g);
    const Graph back = parse_graph(text);
    EXPECT_EQ(print_graph(back), text);
    check_types(op_set(), back);
    EXPECT_EQ(back.gradients.size(), g.gradients.size());
    EXPECT_EQ(back.loss, g.loss);
    EXPECT_EQ(back.placeholders, g.placeholders);
  }
}

TEST(Text, LooksAsDocumented) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 2});
  const ValueId p = b.parameter("p", {3, 2}, {Initializer::Kind::Normal, 0, 0.02});
  const ValueId y = b.apply("linear", {x, p}, {}, "fc");
  b.cut();
  b.fetch("total", b.apply("sum", {b.apply("scale", {y}, {{"factor", std::int64_t{2}}})}));
  EXPECT_EQ(print_graph(b.finish()), R"(graph blocks=2
%0: float32[B, 2] = placeholder "x"() @0 forward
%1: float32[3, 2] = parameter "p"() {a=0.0, b=0.02, decay=1, init="normal"} @0 forward
%2: float32[B, 3] = linear "fc"(%0, %1) @0 forward
%3: float32[B, 3] = scale "scale"(%2) {factor=2.0} @1 forward
%4: float32[] = sum "sum"(%3) @1 forward
fetch "total" %4
)");
}

TEST(Text, KeepsWhatAParameterStartsFrom) {
  Builder b(op_set());
  const ValueId p = b.parameter("p", {2}, {});
  b.start_from(p, {1.5F, -std::numeric_limits<float>::infinity()});
  b.fetch("total", b.apply("sum", {p}));
  const ValueId count = b.buffer("count", {}, {});
  b.start_from(count, {2.0F});
  b.apply("count_up", {count});
  EXPECT_THAT(
      [&] {
        b.start_from(count, {2.0F, 3.0F});
      },
      ThrowsMessage<Error>(HasSubstr("buffer 'count': float32[] cannot be initialized from 2")));
  const std::string text = print_graph(b.finish());
  EXPECT_THAT(text,
              HasSubstr("{a=0.0, b=0.0, decay=1, init=\"constant\", start=\"0000c03f000080ff\"}"));
  const Graph back = parse_graph(text);
  ASSERT_NE(back.parameters[0].start, nullptr);
  EXPECT_EQ((*back.parameters[0].start)[0], 1.5F);
  ASSERT_NE(back.buffers[0].start, nullptr);
  EXPECT_EQ((*back.buffers[0].start)[0], 2.0F);
  EXPECT_EQ(print_graph(back), text);
  for (const std::string& bad : {"0000c03f", "0000c03f000080fg"}) {
    std::string damaged = text;
    damaged.replace(damaged.find("0000c03f000080ff"), 16, bad);
    EXPECT_THAT(
        [&] { parse_graph(damaged); },
        ThrowsMessage<Error>(HasSubstr("an optional start with two hexadecimal digits per byte")));
  }
  Builder other(op_set());
  const ValueId q = other.parameter("q", {2}, {});
  EXPECT_THAT(
      [&] { other.start_from(q, {1}); },
      ThrowsMessage<Error>("parameter 'q': float32[2] cannot be initialized from 1 elements"));
  EXPECT_THROW(other.start_from(q + 1, {1, 2}), Error);
}

TEST(Text, KeepsEveryAttributeAndInitializer) {
  Graph g;
  Node n;
  n.op = "anything";
  n.name = "a \"quoted\"\nname \\ with / marks";
  n.attrs = {{"i", std::numeric_limits<std::int64_t>::min()},
             {"x", 0.1},
             {"whole", 3.0},
             {"zero", -0.0},
             {"big", 1e300},
             {"small", std::numeric_limits<double>::denorm_min()},
             {"inf", -std::numeric_limits<double>::infinity()},
             {"text", std::string("}, {x=\"1\"")},
             {"list", Shape{-2, 0, 7}},
             {"none", Shape{}}};
  n.outputs = {0, 1};
  g.values = {{0, 0, {DType::Bool, {-128, 3}}}, {0, 1, {DType::BFloat16, {}}}};
  g.nodes.push_back(n);
  for (int kind = 0; kind < Initializer::kKinds; ++kind) {
    Node p;
    p.op = "parameter";
    p.name = "p" + std::to_string(kind);
    p.outputs = {kind + 2};
    g.values.push_back({kind + 1, 0, {DType::Float32, {3}}});
    g.nodes.push_back(p);
    g.parameters.push_back({p.name,
                            kind + 2,
                            {static_cast<Initializer::Kind>(kind), -0.5 * kind, 1.0 / (kind + 3)},
                            kind % 2 == 0,
                            nullptr,
                            kind % 3 == 0});
  }
  const Graph back = parse_graph(print_graph(g));
  EXPECT_EQ(back.nodes[0].attrs, n.attrs);
  EXPECT_EQ(back.nodes[0].name, n.name);
  EXPECT_EQ(back.values[0].type, g.values[0].type);
  for (std::size_t i = 0; i < g.parameters.size(); ++i) {
    EXPECT_EQ(back.parameters[i].init, g.parameters[i].init);
    EXPECT_EQ(back.parameters[i].decay, g.parameters[i].decay);
    EXPECT_EQ(back.parameters[i].served, g.parameters[i].served);
  }
  EXPECT_EQ(print_graph(back), print_graph(g));
}

TEST(Text, ErrorsNameLineAndExpectation) {
  const std::string x = "%0: float32[B, 2] = placeholder \"x\"() @0 forward\n";
  const auto parsing = [&](const std::string& line) {
    return [=] { parse_graph("graph blocks=1\n" + x + line + "\n"); };
  };
  const auto says = [](const char* text) { return ThrowsMessage<Error>(HasSubstr(text)); };
  EXPECT_THAT([] { parse_graph(""); }, says("its first line must be like 'graph blocks=1'"));
  EXPECT_THAT([] { parse_graph("grph"); },
              says("line 1, column 1: expected 'graph', found 'grph'"));
  EXPECT_THAT(parsing("%2: float32[] = sum \"s\"(%0) @0 forward"),
              says("line 3, column 3: expected %1 as the next value"));
  EXPECT_THAT(parsing("%1: float[] = sum \"s\"(%0) @0 forward"),
              says("line 3, column 5: expected a type such as"));
  EXPECT_THAT(parsing("%1: float32[-3] = sum \"s\"(%0) @0 forward"),
              says("a dimension >= 0, or B"));
  EXPECT_THAT(parsing("%1: float32[] = sum s(%0) @0 forward"), says("expected '\"', found 's(%0)"));
  EXPECT_THAT(parsing("%1: float32[] = sum \"s\"(%0 @0 forward"), says("expected ','"));
  EXPECT_THAT(parsing("%1: float32[] = sum \"s\"(%0) @0 backward"),
              says("expected count, forward, input_grad or weight_grad, found 'backward'"));
  EXPECT_THAT(parsing("%1: float32[] = sum \"s\"(%0) {a=} @0 forward"),
              says("expected an integer, a number"));
  EXPECT_THAT(parsing("%1: float32[] = sum \"s\"(%0) @0 forward @"),
              says("expected the end of the line, found '@'"));
  EXPECT_THAT(parsing("%1: float32[] = sum \"s\"(%7) @0 forward"),
              says("node 's' (sum): input value does not exist"));
  EXPECT_THAT(parsing("%1: float32[] = parameter \"p\"() {init=\"normal\"} @0 forward"),
              says("expected a parameter with {a=.."));
  EXPECT_THAT(parsing("gradient \"p\" use=0 %0 @0"), says("the name of a parameter before 'use='"));
  EXPECT_THAT(
      parsing("%1: bool[] = sum \"s\"(%0) @0 forward\nfetch \"x\" %1"),
      says("a fetch must have the batch as its first axis, or be float32 or int32 without"));
}

// A damaged text may only cause an InvalidArgument. If it is accepted, the graph can be printed
// again.
TEST(Text, SurvivesDamage) {
  const std::string text = print_graph(trained(transformer()));
  std::mt19937 random(7);
  const std::string alphabet = "%:[]{}()@,=\"\\ 0123456789-BXe.\nabcinf";
  int read = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 1 + round % 3; ++i) {
      const std::size_t at = random() % damaged.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          damaged[at] = c;
          break;
        case 1:
          damaged.erase(at, 1 + random() % 5);
          break;
        default:
          damaged.insert(at, 1, c);
      }
    }
    try {
      const std::string again = print_graph(parse_graph(damaged));
      EXPECT_EQ(print_graph(parse_graph(again)), again);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::InvalidArgument) << "seed 7 round " << round << error.what();
    }
  }
  EXPECT_GT(read, 5);
}

}  // namespace
}  // namespace hetu
