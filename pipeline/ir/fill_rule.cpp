#include "pipeline/ir/fill_rule.h"

#include "base/error.h"

namespace hetu {
namespace {

template <class Value>
struct Name {
  Value value;
  const char* name;
};
constexpr Name<FillRule> kRules[] = {
    {FillRule::After, "after"}, {FillRule::Best, "best"}, {FillRule::Wrap, "wrap"}};
constexpr Name<InverseMakers> kMakers[] = {{InverseMakers::Owners, "owners"},
                                           {InverseMakers::All, "all"}};

template <class Names>
std::vector<const char*> all_of(const Names& names) {
  std::vector<const char*> all;
  for (const auto& n : names) all.push_back(n.name);
  return all;
}

template <class Names, class Value>
const char* name_of(const Names& names, Value value) {
  for (const auto& n : names)
    if (n.value == value) return n.name;
  fail(Code::Internal, "a value of a K-FAC option has no name");
}

template <class Names>
auto parse(const Names& names, const std::string& name, const char* what) {
  for (const auto& n : names)
    if (name == n.name) return n.value;
  fail(Code::InvalidArgument, "unknown {} '{}'; known: {}", what, name,
       fmt::join(all_of(names), ", "));
}

}  // namespace

const char* fill_rule_name(FillRule rule) { return name_of(kRules, rule); }

FillRule parse_fill_rule(const std::string& name) {
  return parse(kRules, name, "placement of K-FAC's work");
}

const char* inverse_makers_name(InverseMakers makers) { return name_of(kMakers, makers); }

InverseMakers parse_inverse_makers(const std::string& name) {
  return parse(kMakers, name, "rule for inverses");
}

OptionField inverses_field(std::string& makers) {
  return {.name = "inverses",
          .value = &makers,
          .argument = "WHO",
          .doc =
              "for K-FAC, if a stage has several copies: owners inverts each layer on one copy, "
              "which sends the inverses to the others; all inverts every layer on every copy",
          .choices = all_of(kMakers)};
}

OptionField fill_field(std::string& rule) {
  return {.name = "fill",
          .value = &rule,
          .argument = "WHERE",
          .doc =
              "where K-FAC's work runs: after the compute of a step (after), in the bubbles of as "
              "many steps as it needs (best), or with inversions also in the bubbles of the next "
              "refresh (wrap)",
          .choices = all_of(kRules),
          .otherwise = rule.empty() ? "" : nullptr};
}

OptionField every_field(std::int64_t& every) {
  return {.name = "curvature_every",
          .value = &every,
          .argument = "N",
          .doc = "for K-FAC: smallest number of steps between two refreshes of the inverses",
          .range = {1, 1 << 16}};
}

OptionField replan_field(double& share) {
  return {.name = "replan",
          .value = &share,
          .argument = "SHARE",
          .doc =
              "for --fill best and wrap: if more than this share of the workers' time in a cycle, "
              "for example 0.2, differs from the plan, K-FAC's work is placed again by the "
              "measured times; 0 turns this off. Otherwise a run's bits depend on the machine's "
              "speed",
          .range = {0, 2}};
}

}  // namespace hetu
