#include "pipeline/ir/fill_rule.h"

#include "graph/base/error.h"

namespace hetu {
namespace {

struct Name {
  FillRule rule;
  const char* name;
};
constexpr Name kNames[] = {{FillRule::After, "after"}, {FillRule::Best, "best"}};

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const Name& n : kNames) all.push_back(n.name);
  return all;
}

}  // namespace

const char* fill_rule_name(FillRule rule) {
  for (const Name& n : kNames)
    if (n.rule == rule) return n.name;
  fail(Code::Internal, "a place of K-FAC's work without a name");
}

FillRule parse_fill_rule(const std::string& name) {
  for (const Name& n : kNames)
    if (name == n.name) return n.rule;
  fail(Code::InvalidArgument, "unknown place of K-FAC's work '{}'; known: {}", name,
       fmt::join(names(), ", "));
}

OptionField fill_field(std::string& rule) {
  return {.name = "fill",
          .place = &rule,
          .argument = "WHERE",
          .doc =
              "K-FAC's work: after the compute of a step, or in the bubbles of as many steps as it "
              "needs (best)",
          .choices = names(),
          .otherwise = rule.empty() ? "" : nullptr};
}

OptionField every_field(std::int64_t& every) {
  return {.name = "curvature_every",
          .place = &every,
          .argument = "N",
          .doc = "of K-FAC: steps between two refreshes of inverses, at least",
          .range = {1, 1 << 16}};
}

}  // namespace hetu
