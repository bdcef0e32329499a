#include <iterator>
#include <utility>

#include "ops/def/tables.h"
#include "ops/registry.h"

namespace hetu {

const OpSet& op_set() {
  static const OpSet kSet = [] {
    std::vector<OpDef> all;
    for (const auto table : {def::math,       def::binary,      def::unary,
                             def::activation, def::linear,      def::shape,
                             def::axis,       def::embedding,   def::gather_family,
                             def::norm,       def::dropout,     def::attention,
                             def::rotary,     def::recurrent,   def::loss,
                             def::reduce,     def::reduce_axes, def::conv,
                             def::pool,       def::resample,    def::batch_norm_family,
                             def::interaction}) {
      std::vector<OpDef> family = table();
      std::move(family.begin(), family.end(), std::back_inserter(all));
    }
    return OpSet(std::move(all));
  }();
  return kSet;
}

}  // namespace hetu
