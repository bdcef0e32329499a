#include "executor/predict/array.h"

#include "base/error.h"

namespace hetu {

void Array::refuse_type(const std::string& given) const {
  fail(Code::InvalidArgument, "this array is {} {}; read it with as<{}>(), not as {}",
       dtype_name(dtype), to_string(shape), element_type_name(dtype), given);
}

}  // namespace hetu
