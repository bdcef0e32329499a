#include "pipeline/lower/waves.h"

#include <vector>

namespace hetu {
namespace {

using Row = std::vector<Instr>;

// A pass along a worker's row. The positions of pushes and pulls depend only on its counters.
class Waves {
 public:
  explicit Waves(const Schedule& s)
      : schedule_(s),
        wave_(updates_per_wave(s)),
        updates_(s.placements.size(), 0),
        pulls_(s.placements.size(), 0) {}

  // Returns a part of the row with its pushes and pulls.
  Row walk(const Row& part) {
    Row out;
    out.reserve(part.size() + 2 * part.size() / schedule_.micro_batches + 2);
    for (std::size_t k = 0; k < part.size(); ++k) {
      // Nothing may stand between two instructions that run as one.
      const bool second = k > 0 && part[k - 1].with_next;
      if (!second) add_pulls(part[k], out);
      if (part[k].with_next && k + 1 < part.size()) add_pulls(part[k + 1], out);
      out.push_back(part[k]);
      if (part[k].kind == Kind::Update && ++updates_[part[k].stage] % wave_ == 0)
        out.push_back({.kind = Kind::Push, .stage = part[k].stage});
    }
    return out;
  }

  // Returns true if the pass from `before` to here, over a body of `shift` micro-batches, consisted
  // of whole waves, each with its push and its pull. The next pass over the body, with all ids
  // raised, then adds the same instructions.
  bool recurs(const Waves& before, int shift) const {
    for (std::size_t s = 0; s < updates_.size(); ++s) {
      const int updates = updates_[s] - before.updates_[s], pulls = pulls_[s] - before.pulls_[s];
      if (updates == 0 && pulls == 0) continue;  // a stage of another worker
      if (updates * micros_per_update(schedule_) != shift || pulls * wave_ != updates) return false;
    }
    return true;
  }

  // Sets the counters to their values after `times` further passes like the one from `before` to
  // here.
  void repeat(const Waves& before, int times) {
    for (std::size_t s = 0; s < updates_.size(); ++s) {
      updates_[s] += times * (updates_[s] - before.updates_[s]);
      pulls_[s] += times * (pulls_[s] - before.pulls_[s]);
    }
  }

  void finish(Row& row) {
    for (std::size_t s = 0; s < pulls_.size(); ++s)
      pull_up_to(updates_[s] / wave_, static_cast<int>(s), row);
  }

 private:
  void add_pulls(const Instr& i, Row& out) {
    if (i.kind != Kind::Forward && i.kind != Kind::RecvForward) return;
    const int version = forward_version(schedule_, i.micro, updates_[i.stage]);
    pull_up_to(version / wave_, i.stage, out);
  }

  void pull_up_to(int waves, int stage, Row& out) {
    for (; pulls_[stage] < waves; ++pulls_[stage])
      out.push_back({.kind = Kind::Pull, .stage = stage});
  }

  const Schedule& schedule_;
  const int wave_;                    // updates per wave
  std::vector<int> updates_, pulls_;  // per placement, so far
};

}  // namespace

void add_waves(Schedule& s) {
  for (Program& p : s.workers) {
    Waves waves(s);
    Row prologue = waves.walk(p.prologue);
    const Waves before = waves;
    Row body = waves.walk(p.body);
    if (waves.recurs(before, p.shift)) {
      waves.repeat(before, p.repeat - 1);
      p.prologue.swap(prologue);
      p.body.swap(body);
      p.drain = waves.walk(p.drain);
      waves.finish(p.drain);
    } else {
      Waves whole(s);
      p = {whole.walk(unroll(p)), {}, 0, 0, {}};
      whole.finish(p.prologue);
    }
  }
}

}  // namespace hetu
