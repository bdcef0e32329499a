// The text form of a graph. The first line is "graph blocks=2". One line per node follows:
//   %4: float32[], %5: float32[B] = softmax_cross_entropy "loss"(%2, %1) {ignore=-1} @1 forward
// The last lines hold fetches, the loss, replacements of buffers, and gradients of parameters.
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/hex.h"
#include "base/limits.h"
#include "graph/graph.h"
#include "graph/line_reader.h"

namespace hetu {
namespace {

constexpr const char* kPhases[] = {"count", "forward", "input_grad", "weight_grad"};
constexpr const char* kInitializers[] = {"constant",         "uniform",        "normal",
                                         "truncated_normal", "xavier_normal",  "xavier_uniform",
                                         "kaiming_normal",   "kaiming_uniform"};
static_assert(std::size(kInitializers) == Initializer::kKinds);

constexpr const char* kChannelsLast = " channels_last";

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out + "\"";
}

// Returns the shortest text that reads back as the same number, and that can't be read as an
// integer.
std::string print_real(double x) {
  std::string out = fmt::format("{}", x);
  if (out.find_first_of(".ein") == std::string::npos) out += ".0";
  return out;
}

std::string print_attr(const Attr& attr) {
  if (const auto* i = std::get_if<std::int64_t>(&attr)) return std::to_string(*i);
  if (const auto* x = std::get_if<double>(&attr)) return print_real(*x);
  if (const auto* s = std::get_if<std::string>(&attr)) return quote(*s);
  std::string out;
  for (const std::int64_t i : std::get<std::vector<std::int64_t>>(attr)) {
    out += (out.empty() ? "" : ", ") + std::to_string(i);
  }
  return "[" + out + "]";
}

// Returns the initializer as attributes: the text form prints it as part of the leaf's node.
Attrs init_attrs(const Initializer& init) {
  return {{"init", std::string(kInitializers[static_cast<int>(init.kind)])},
          {"a", init.a},
          {"b", init.b}};
}

Attrs parameter_attrs(const Parameter& p) {
  Attrs attrs = init_attrs(p.init);
  attrs.set("decay", std::int64_t{p.decay});
  if (p.served) attrs.set("served", std::int64_t{1});
  if (p.role != Parameter::Role::Weight) {
    attrs.set("role", std::int64_t{static_cast<int>(p.role)});
    attrs.set("factor_of", p.factor_of);
  }
  if (p.start) attrs.set("start", to_hex(p.start->data(), p.start->size() * sizeof(float)));
  return attrs;
}

Attrs buffer_attrs(const StateBuffer& b) {
  Attrs attrs = init_attrs(b.init);
  if (b.start) attrs.set("start", to_hex(b.start->data(), b.start->size() * sizeof(float)));
  return attrs;
}

std::string print_node(const Graph& g, const Node& n, const Attrs& attrs) {
  std::string out;
  for (const ValueId v : n.outputs) {
    const Value& value = g.values[v];
    out += fmt::format("{}%{}: {}{}", out.empty() ? "" : ", ", v, to_string(value.type),
                       value.layout == Layout::Plain ? "" : kChannelsLast);
  }
  out += " = " + n.op + " " + quote(n.name) + "(";
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    out += fmt::format("{}%{}", i ? ", " : "", n.inputs[i]);
  }
  out += ")";
  std::string list;
  for (const auto& [key, value] : attrs.items()) {
    list += (list.empty() ? "" : ", ") + key + "=" + print_attr(value);
  }
  if (!list.empty()) out += " {" + list + "}";
  return out + fmt::format(" @{} {}\n", n.block, kPhases[static_cast<int>(n.phase)]);
}

/// Reads lines into a graph.
class GraphReader {
 public:
  void line(std::string_view text, int number) {
    LineReader in(text, number);
    if (number == 1) {
      in.expect("graph");
      in.expect("blocks=");
      graph_.blocks = in.number<int>("the number of blocks");
    } else if (in.take("fetch ")) {
      const std::string name = in.quoted();
      graph_.fetches.push_back({name, in.value()});
    } else if (in.take("loss ")) {
      graph_.loss = in.value();
    } else if (in.take("replace ")) {
      replace(in);
    } else if (in.take("gradient ")) {
      gradient(in);
    } else {
      node(in);
    }
    in.end();
  }

  Graph finish() {
    try {
      check_graph(graph_);
    } catch (const Error& error) {
      fail(Code::InvalidArgument, "graph text: {}", error.what());
    }
    return std::move(graph_);
  }

 private:
  void node(LineReader& in) {
    Node n;
    const auto id = static_cast<NodeId>(graph_.nodes.size());
    do {
      const ValueId v = in.value();
      if (v != static_cast<ValueId>(graph_.values.size())) {
        in.expected(fmt::format("%{} as the next value", graph_.values.size()));
      }
      in.expect(":");
      const TensorType type = in.type();
      if (!is_size(type.shape)) in.expected("a tensor of at most 2^44 elements");
      const Layout layout = in.take(kChannelsLast + 1) ? Layout::ChannelsLast : Layout::Plain;
      graph_.values.push_back({id, static_cast<int>(n.outputs.size()), type, layout});
      n.outputs.push_back(v);
    } while (in.take(","));
    in.expect("=");
    n.op = in.word();
    n.name = in.quoted();
    in.expect("(");
    while (!in.take(")")) {
      if (!n.inputs.empty()) in.expect(",");
      n.inputs.push_back(in.value());
    }
    if (in.take("{")) {
      do {
        const std::string key = in.word();
        in.expect("=");
        n.attrs.set(key, in.attr());
      } while (in.take(","));
      in.expect("}");
    }
    in.expect("@");
    n.block = in.number<int>("a block");
    n.phase = static_cast<Phase>(in.choice(kPhases, "count, forward, input_grad or weight_grad"));
    if (n.op == "placeholder") graph_.placeholders.push_back(n.outputs[0]);
    if (n.op == "parameter") parameter(in, n);
    if (n.op == "buffer") buffer(in, n);
    graph_.nodes.push_back(std::move(n));
  }

  // Reads the initializer from the attributes of a leaf. Returns false if they hold none.
  static bool initializer(const Attrs& attrs, Initializer& init) {
    try {
      bool known = false;
      for (std::size_t i = 0; i < std::size(kInitializers); ++i) {
        if (attrs.text("init") != kInitializers[i]) continue;
        init.kind = static_cast<Initializer::Kind>(i);
        known = true;
      }
      init.a = attrs.real("a");
      init.b = attrs.real("b");
      return known;
    } catch (const Error&) {
      return false;
    }
  }

  void parameter(const LineReader& in, Node& n) {
    Parameter p{n.name, n.outputs[0], {}, true, nullptr};
    if (!initializer(n.attrs, p.init) || !n.attrs.has("decay")) {
      in.expected("a parameter with {a=.., b=.., decay=0 or 1, init=\"constant\"..}");
    }
    try {
      p.decay = n.attrs.integer("decay") != 0;
      p.served = n.attrs.has("served") && n.attrs.integer("served") != 0;
      if (n.attrs.has("role")) {
        const std::int64_t role = n.attrs.integer("role");
        if (role != 1 && role != 2) in.expected("role=1 (input factor) or 2 (gradient factor)");
        p.role = static_cast<Parameter::Role>(role);
        p.factor_of = n.attrs.text("factor_of");
      }
      const std::int64_t count = element_count(graph_.values[p.value].type.shape);
      if (n.attrs.has("start")) p.start = floats_from_hex(n.attrs.text("start"), count);
    } catch (const Error&) {
      in.expected(
          "decay=0 or decay=1, an optional served=1, and an optional start with two hexadecimal "
          "digits per byte");
    }
    n.attrs = {};
    graph_.parameters.push_back(std::move(p));
  }

  void buffer(const LineReader& in, Node& n) {
    StateBuffer b{n.name, n.outputs[0], {}, kNone, nullptr};
    if (!initializer(n.attrs, b.init)) {
      in.expected("a buffer with {a=.., b=.., init=\"constant\"..}");
    }
    try {
      const std::int64_t count = element_count(graph_.values[b.value].type.shape);
      if (n.attrs.has("start")) b.start = floats_from_hex(n.attrs.text("start"), count);
    } catch (const Error&) {
      in.expected("an optional start with two hexadecimal digits per byte");
    }
    n.attrs = {};
    graph_.buffers.push_back(std::move(b));
  }

  void replace(LineReader& in) {
    const std::string name = in.quoted();
    for (StateBuffer& b : graph_.buffers) {
      if (b.name != name) continue;
      b.next = in.value();
      return;
    }
    in.expected("the name of a buffer before a value");
  }

  void gradient(LineReader& in) {
    GradientUse u;
    const std::string name = in.quoted();
    u.parameter = -1;
    for (std::size_t i = 0; i < graph_.parameters.size(); ++i) {
      if (graph_.parameters[i].name == name) u.parameter = static_cast<int>(i);
    }
    if (u.parameter < 0) in.expected("the name of a parameter before 'use='");
    in.expect("use=");
    u.use = in.number<int>("the number of the use");
    u.gradient = in.value();
    in.expect("@");
    u.block = in.number<int>("a block");
    graph_.gradients.push_back(u);
  }

  Graph graph_;
};

}  // namespace

std::string print_graph(const Graph& g) {
  std::string out = fmt::format("graph blocks={}\n", g.blocks);
  std::size_t parameter = 0, buffer = 0;
  for (const Node& n : g.nodes) {
    Attrs attrs = n.attrs;
    if (n.op == "parameter") attrs = parameter_attrs(g.parameters[parameter++]);
    if (n.op == "buffer") attrs = buffer_attrs(g.buffers[buffer++]);
    out += print_node(g, n, attrs);
  }
  for (const auto& [name, v] : g.fetches) out += fmt::format("fetch {} %{}\n", quote(name), v);
  if (g.loss != kNone) out += fmt::format("loss %{}\n", g.loss);
  for (const StateBuffer& b : g.buffers) {
    if (b.next != kNone) out += fmt::format("replace {} %{}\n", quote(b.name), b.next);
  }
  for (const GradientUse& u : g.gradients) {
    out += fmt::format("gradient {} use={} %{} @{}\n", quote(g.parameters[u.parameter].name), u.use,
                       u.gradient, u.block);
  }
  return out;
}

Graph parse_graph(const std::string& text) {
  GraphReader reader;
  std::size_t start = 0;
  int number = 0;
  while (start < text.size()) {
    const std::size_t stop = std::min(text.find('\n', start), text.size());
    reader.line(std::string_view(text).substr(start, stop - start), ++number);
    start = stop + 1;
  }
  require(number > 0, "the graph text is empty; its first line must be like 'graph blocks=1'");
  return reader.finish();
}

}  // namespace hetu
