// Tables of operator records, one per family. They are explicit functions, because a linker drops
// an unreferenced object of a static library, and static-initializer registrations with it.
#pragma once
#include <vector>

#include "graph/op_def.h"

namespace hetu::def {

std::vector<OpDef> math();
std::vector<OpDef> binary();
std::vector<OpDef> unary();
std::vector<OpDef> activation();
std::vector<OpDef> linear();
std::vector<OpDef> shape();
std::vector<OpDef> axis();
std::vector<OpDef> embedding();
std::vector<OpDef> gather_family();
std::vector<OpDef> norm();
std::vector<OpDef> dropout();
std::vector<OpDef> attention();
std::vector<OpDef> rotary();
std::vector<OpDef> recurrent();
std::vector<OpDef> loss();
std::vector<OpDef> reduce();
std::vector<OpDef> reduce_axes();
std::vector<OpDef> conv();
std::vector<OpDef> pool();
std::vector<OpDef> resample();
std::vector<OpDef> batch_norm_family();
std::vector<OpDef> interaction();

}  // namespace hetu::def
