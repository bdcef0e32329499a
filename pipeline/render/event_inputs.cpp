#include <algorithm>
#include <map>
#include <tuple>

#include "pipeline/ir/event_instr.h"
#include "pipeline/ir/producers.h"
#include "pipeline/render/render.h"
#include "pipeline/render/timeline.h"

namespace hetu {
namespace {

/// Index of events by the instruction that they ran. A run of several steps has each instruction
/// several times.
class EventIndex {
 public:
  EventIndex(const std::vector<TraceEvent>& events, int workers)
      : events_(events), workers_(workers) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      const auto instr = instr_of(events[i]);
      if (instr) where_[key(events[i].worker, *instr)].push_back(static_cast<int>(i));
    }
  }

  /// Returns the event that produced an input of `consumer`: the one of the same step, or else the
  /// last one that started before it. Returns -1 if there is none.
  int find(const TraceEvent& consumer, const Instr& wanted) const {
    std::vector<Kind> kinds = {wanted.kind};
    const bool gradient = wanted.kind == Kind::InputGrad || wanted.kind == Kind::WeightGrad;
    if (gradient) kinds.push_back(Kind::Backward);
    for (const Kind kind : kinds) {
      Instr instr = wanted;
      instr.kind = kind;
      const auto hit = where_.find(key(consumer.worker, instr));
      if (hit == where_.end()) continue;
      int before = -1;
      for (const int i : hit->second) {
        if (events_[i].step == consumer.step) return i;
        const bool earlier = events_[i].start_us <= consumer.start_us;
        if (earlier && (before < 0 || events_[i].start_us > events_[before].start_us)) before = i;
      }
      if (before >= 0) return before;
    }
    return -1;
  }

 private:
  // Pipeline, kind, stage, micro-batch, part. Within a pipeline a stage id identifies the worker.
  using Key = std::tuple<int, Kind, int, int, int>;
  Key key(int worker, const Instr& i) const {
    return {worker / workers_, i.kind, i.stage, i.micro, i.part};
  }

  const std::vector<TraceEvent>& events_;
  const int workers_;
  std::map<Key, std::vector<int>> where_;
};

}  // namespace

void add_inputs(TimelineRowSet& set, const Schedule& plan) {
  const bool lowered = std::any_of(set.events.begin(), set.events.end(), [](const TraceEvent& e) {
    const auto instr = instr_of(e);
    return instr && (is_send(instr->kind) || is_recv(instr->kind));
  });
  const StageGraph graph(plan, lowered);
  const EventIndex index(set.events, std::max<int>(1, static_cast<int>(plan.workers.size())));
  set.inputs.assign(set.events.size(), {});
  for (std::size_t i = 0; i < set.events.size(); ++i) {
    const TraceEvent& e = set.events[i];
    const auto instr = instr_of(e);
    if (!instr || e.stage < 0 || e.stage >= graph.stages()) continue;
    const auto add = [&](const auto& self, const Instr& consumer) -> void {
      graph.producers(consumer, [&](const Producer& p) {
        const int made = index.find(e, p.instr);
        if (made >= 0)
          set.inputs[i].push_back({made, cell_of(set.events[made], true)});
        else if (is_recv(p.instr.kind))  // a prediction has no receives; its sends are drawn
          self(self, p.instr);
        else if (!p.if_present)
          set.inputs[i].push_back({-1, to_string(p.instr)});
      });
    };
    add(add, *instr);
  }
}

}  // namespace hetu
