// Tests that the code of docs/add-an-operator.md works, and that the page shows this code.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "graph/builder.h"
#include "ops/registry.h"
#include "tests/ops/square_example.h"

namespace hetu {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path << " (tests run in the source folder)";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the text between the first `from` and the next `to`.
std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t start = text.find(from);
  EXPECT_NE(start, std::string::npos) << from;
  const std::size_t end = text.find(to, start + from.size());
  EXPECT_NE(end, std::string::npos) << to;
  return text.substr(start + from.size(), end - start - from.size());
}

// Returns the page's code block after the first mention of a file.
std::string shown(const std::string& file) {
  const std::string page = read("docs/add-an-operator.md");
  const std::size_t at = page.find("`" + file + "`");
  EXPECT_NE(at, std::string::npos) << file;
  return between(page.substr(at), "```cpp\n", "```");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(AddAnOperator, ThePageShowsTheCodeThatIsTested) {
  const std::string source = read("tests/ops/square_example.h");
  for (const std::string file :
       {"ops/scalar_fns.h", "ops/def/math.cpp", "ops/cpu/reference_elementwise.cpp"}) {
    EXPECT_EQ(shown(file), between(source, "// [" + file + "]\n", "// [end]")) << file;
  }
}

// The page's rows equal those of sqrt under another name, so the page follows the form of the
// tables.
TEST(AddAnOperator, ItsRowsLookAsTheTablesDo) {
  for (const std::string file :
       {"ops/cpu/reference_elementwise.cpp", "ops/cpu/vector_elementwise.cpp"}) {
    const std::string as_sqrt = replaced(replaced(shown(file), "square", "sqrt"), "Square", "Sqrt");
    EXPECT_THAT(read(file), testing::HasSubstr(as_sqrt));
  }
}

using Buffers = std::map<ValueId, std::vector<float>>;

// Runs a graph of float32 values. `square` runs by the example's row, and all other operators by
// the kernels of this build.
void run(const Graph& g, Buffers& values) {
  const std::vector<KernelRow> rows = example::cpu::rows();
  const RunContext context;
  for (const Node& n : g.nodes) {
    if (is_leaf(n)) continue;
    KernelDesc desc;
    desc.op = n.op;
    desc.name = n.name;
    desc.attrs = &n.attrs;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const ValueId v : n.inputs) {
      desc.inputs.push_back(g.values[v].type);
      inputs.push_back(values.at(v).data());
    }
    for (const ValueId v : n.outputs) {
      desc.outputs.push_back(g.values[v].type);
      values[v].resize(element_count(g.values[v].type.shape));
      outputs.push_back(values[v].data());
    }
    const PreparedKernel kernel =
        n.op == rows[0].op ? rows[0].prepare(desc) : prepare_cpu(desc, KernelChoice::Reference);
    std::vector<char> scratch(kernel.scratch_bytes);
    kernel.run({inputs.data(), outputs.data(), scratch.data(), context});
  }
}

TEST(AddAnOperator, TheExampleTrains) {
  std::vector<OpDef> defs = op_set().all();
  defs.push_back(example::def::square());
  const OpSet ops(std::move(defs));
  Builder b(ops);
  const ValueId x = b.parameter("x", {2, 3}, {});
  const ValueId loss = b.apply("sum", {b.apply("square", {x})});
  b.fetch("loss", loss);
  b.differentiate(loss);
  const Graph g = b.finish();
  check_types(ops, g);

  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  Buffers values;
  for (int i = 0; i < 6; ++i) values[x].push_back(normal(random));
  run(g, values);
  float sum = 0;
  ASSERT_EQ(g.gradients.size(), 1U);
  for (int i = 0; i < 6; ++i) {
    const float at = values[x][i];
    sum += at * at;
    EXPECT_FLOAT_EQ(values[g.gradients[0].gradient][i], 2 * at);
  }
  EXPECT_FLOAT_EQ(values[loss][0], sum);
}

}  // namespace
}  // namespace hetu
