#include "executor/job/sum_speed.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

constexpr int kRounds = 4;   // the first round touches the memory and is not counted
constexpr int kBuckets = 4;  // sums in progress at the same time, as in a step
constexpr std::int64_t kElements = std::int64_t{2} << 20;

double seconds_of_round(comm::Transport& transport, comm::Reducer& reducer,
                        std::vector<float>& data, int round) {
  const auto what = [] { return std::string("the speed of sums"); };
  const comm::Group all = comm::everyone(transport);
  comm::barrier(transport, all, {comm::make_tag(kTraceTag, 1, round, 0, 0), what});
  const std::int64_t start_ns = comm::now_ns();
  std::vector<std::shared_ptr<comm::Sum>> sums;
  for (int b = 0; b < kBuckets; ++b) {
    sums.push_back(reducer.start_sum(all, DType::Float32, data.data() + b * kElements, kElements,
                                     comm::make_tag(kTraceTag, 2, round, b, 0)));
  }
  std::int64_t end_ns = start_ns;
  for (const auto& sum : sums) end_ns = std::max(end_ns, reducer.wait(*sum, what));
  return static_cast<double>(end_ns - start_ns) * 1e-9;
}

}  // namespace

double sum_ms_per_byte(comm::Transport& transport, comm::Reducer& reducer) {
  if (transport.workers() == 1) return 0;
  std::vector<float> data(kBuckets * kElements, 1.0F);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round)
    seconds.push_back(seconds_of_round(transport, reducer, data, round));
  seconds.erase(seconds.begin());
  std::sort(seconds.begin(), seconds.end());
  // In a sum over n members, each member moves 2 (n - 1) / n of the bytes. With two members that is
  // all of them.
  const double n = transport.workers();
  const double moved = static_cast<double>(data.size() * sizeof(float)) * 2 * (n - 1) / n;
  return seconds[seconds.size() / 2] * 1e3 / moved;
}

}  // namespace hetu
