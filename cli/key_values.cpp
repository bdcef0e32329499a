#include "cli/key_values.h"

#include <set>

#include "graph/base/error.h"

namespace hetu::cli {
namespace {

constexpr int kMostWorkers = 1 << 20;
constexpr const char* kLate = "late_us";  // the one constant that is a whole number

using KeyValues = std::vector<std::pair<std::string, std::string>>;

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

KeyValues parse(const std::string& text, const std::vector<const char*>& known) {
  KeyValues out;
  std::set<std::string> seen;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    require(equals != std::string::npos, "expected KEY=VALUE, got '{}'", part.substr(0, 40));
    const std::string key = one_of(trimmed(part.substr(0, equals)), known);
    require(seen.insert(key).second, "'{}' stands twice; it must stand once", key);
    out.emplace_back(key, trimmed(part.substr(equals + 1)));
  }
  return out;
}

// The value, with its key in what is wrong with it.
template <class Convert>
auto valued(const std::string& key, const Convert& convert) {
  try {
    return convert();
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", key, e.what());
  }
}

}  // namespace

Slowdown parse_slow(const std::string& text) {
  Slowdown slow;
  bool factor = false;
  for (const auto& [key, value] : parse(text, {"pipeline", "worker", "factor", "from", "to"})) {
    const auto number = [&, &v = value] { return valued(key, [&] { return to_number(v); }); };
    const auto index = [&, &v = value] {
      return static_cast<int>(valued(key, [&] { return to_integer(v, 0, kMostWorkers); }));
    };
    if (key == "pipeline") slow.pipeline = index();
    if (key == "worker") slow.worker = index();
    if (key == "from") slow.from = number();
    if (key == "to") slow.to = number();
    if (key != "factor") continue;
    slow.factor = number();
    require(slow.factor > 0, "factor must be above 0");
    factor = true;
  }
  require(factor && (slow.pipeline >= 0) != (slow.worker >= 0),
          "needs a pipeline or a worker, not both, and a factor: \"pipeline=1,factor=2\"");
  return slow;
}

Option slow_option(std::vector<Slowdown>& into) {
  return {"--slow", "WHO",
          "\"pipeline=1,factor=2\" or \"worker=5,factor=1.3,from=100,to=300\"; may be repeated",
          [&into](const std::string& v) { into.push_back(parse_slow(v)); }};
}

std::vector<std::pair<const char*, double*>> constants_of(groups::Options& policy) {
  return {{"wait", &policy.wait},
          {"horizon", &policy.horizon},
          {"soft", &policy.soft},
          {"hard", &policy.hard},
          {"patience", &policy.patience},
          {"smoothing", &policy.smoothing},
          {"late_share", &policy.late_share},
          {"late_spread", &policy.late_spread},
          {"stale_share", &policy.stale_share}};
}

Option constants_option(groups::Options& policy, const std::function<void()>& given) {
  return {"--group-options", "K=V,…",
          "preduce: wait, horizon, soft, hard, patience, smoothing, late_us, late_share, "
          "late_spread, stale_share",
          [&policy, given](const std::string& v) {
            const auto constants = constants_of(policy);
            std::vector<const char*> names = {kLate};
            for (const auto& [name, into] : constants) names.push_back(name);
            for (const auto& [key, value] : parse(v, names)) {
              if (key == kLate)
                policy.late_us =
                    valued(key, [&, &v = value] { return to_integer(v, 0, INT64_MAX); });
              for (const auto& [name, into] : constants)
                if (key == name) *into = valued(key, [&, &v = value] { return to_number(v); });
            }
            given();
          }};
}

}  // namespace hetu::cli
