#include "executor/job/batches_ahead.h"

namespace hetu {

// Fields that tables on servers read are not uploaded ahead, because their ids are renumbered when
// their step begins.
NextBatch::NextBatch(TrainStages& stages, const BatchesAhead& known, const ServerTables* tables)
    : ahead_(stages.ahead()) {
  ahead_.set_next(known.read, [&stages, &known, tables](std::size_t field) -> FeedsAhead::Next {
    const TrainStages::FeedField& of = stages.fields()[field];
    const std::string& name = of.feed->field;
    if (!stages.reads(of) || (tables != nullptr && tables->reads(name))) return {};
    const void* const data = known.find(name, of.bytes);
    return {data, data != nullptr ? known.number() : 0};
  });
}

NextBatch::~NextBatch() {
  ahead_.set_next(nullptr, nullptr);
  ahead_.settle();
}

}  // namespace hetu
