#include "pipeline/cost/profile_file.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

using nlohmann::json;

constexpr const char* kSizes = "micro_batch_sizes";

int size_of(const std::string& key, const std::string& origin) {
  int size = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), size);
  if (error != std::errc() || end != key.data() + key.size() || size < 1)
    fail(Code::Config, "{}: '{}': the keys are numbers of samples, such as \"8\", got '{}'", origin,
         kSizes, one_line(key.substr(0, 40)));
  return size;
}

}  // namespace

bool is_profile(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' &&
         text.find("\"" + std::string(kSizes) + "\"") != std::string::npos;
}

Profile parse_profile(const std::string& text, const std::string& origin) {
  json in;
  try {
    in = json::parse(bounded_json(text, origin));
  } catch (const json::exception& e) {
    fail(Code::Config, "{}: {}", origin, one_line(e.what()));
  }
  if (!in.is_object() || !in.contains(kSizes) || !in[kSizes].is_object() || in[kSizes].empty())
    fail(Code::Config, "{}: '{}' must be an object with the costs of each size", origin, kSizes);
  Profile profile;
  for (const auto& [key, costs] : in[kSizes].items()) {
    const std::string at = fmt::format("{}: micro-batches of {}", origin, one_line(key));
    Costs& one = profile[size_of(key, origin)] = parse_costs(costs.dump(), at);
    if (one.blocks.empty()) fail(Code::Config, "{}: the costs have no 'blocks'", at);
    const std::size_t blocks = profile.begin()->second.blocks.size();
    if (one.blocks.size() != blocks)
      fail(Code::Config, "{}: {} blocks, but {} blocks for micro-batches of {}", at,
           one.blocks.size(), blocks, profile.begin()->first);
  }
  return profile;
}

const Costs& costs_of_size(const Profile& profile, int micro_batch_size,
                           const std::string& origin) {
  const auto found = profile.find(micro_batch_size);
  if (found != profile.end()) return found->second;
  std::string sizes;
  for (const auto& [size, costs] : profile)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  fail(Code::Config,
       "{}: micro-batches of {} samples were not measured; measured are {}; choose one of them, or "
       "measure this size, too",
       origin, micro_batch_size, sizes);
}

}  // namespace hetu
