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
  fail(Code::Internal, "a choice of K-FAC's without a name");
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
  return parse(kRules, name, "place of K-FAC's work");
}

const char* inverse_makers_name(InverseMakers makers) { return name_of(kMakers, makers); }

InverseMakers parse_inverse_makers(const std::string& name) {
  return parse(kMakers, name, "maker of inverses");
}

OptionField inverses_field(std::string& makers) {
  return {.name = "inverses",
          .value = &makers,
          .argument = "WHO",
          .doc =
              "of K-FAC, of a stage with several copies: each layer is inverted by one of them, "
              "which gives its inverses to the others (owners), or by every copy (all)",
          .choices = all_of(kMakers)};
}

OptionField fill_field(std::string& rule) {
  return {.name = "fill",
          .value = &rule,
          .argument = "WHERE",
          .doc =
              "K-FAC's work: after the compute of a step, in the bubbles of as many steps as it "
              "needs (best), or with inversions in bubbles of the refresh after, too (wrap)",
          .choices = all_of(kRules),
          .otherwise = rule.empty() ? "" : nullptr};
}

OptionField every_field(std::int64_t& every) {
  return {.name = "curvature_every",
          .value = &every,
          .argument = "N",
          .doc = "of K-FAC: steps between two refreshes of inverses, at least",
          .range = {1, 1 << 16}};
}

OptionField replan_field(double& share) {
  return {.name = "replan",
          .value = &share,
          .argument = "SHARE",
          .doc =
              "of --fill best and wrap: after a cycle in which more than this share of the "
              "workers' time lay elsewhere than planned, as 0.2, K-FAC's work is placed anew by "
              "what was measured; 0 = off, as then a run's bits depend on the machine's speed",
          .range = {0, 2}};
}

}  // namespace hetu
