#include "datasets/batch.h"

#include <utility>

#include "base/error.h"

namespace hetu {

void FieldData::refuse_type(const std::string& given) const {
  fail(Code::InvalidArgument, "batch: field '{}' is {}; use as<{}>() for it, not {}", name,
       dtype_name(dtype), element_type_name(dtype), given);
}

const FieldData& Batch::at(const std::string& name) const {
  std::string there;
  for (const FieldData& field : fields) {
    if (field.name == name) return field;
    there += (there.empty() ? "" : ", ") + field.name;
  }
  fail(Code::InvalidArgument, "batch: no field '{}'; its fields are: {}", name, there);
}

FieldData& Batch::at(const std::string& name) {
  return const_cast<FieldData&>(std::as_const(*this).at(name));
}

Batch join_batches(const std::vector<Batch>& parts) {
  Batch all;
  for (const Batch& part : parts) {
    all.rows += part.rows;
    if (all.fields.empty()) {
      all.fields = part.fields;
      continue;
    }
    for (FieldData& field : all.fields) {
      const FieldData& more = part.at(field.name);
      field.bytes.insert(field.bytes.end(), more.bytes.begin(), more.bytes.end());
      field.shape[0] += more.shape[0];
    }
  }
  return all;
}

void resize_batch(Batch& batch, const std::vector<Field>& fields, std::int64_t rows) {
  batch.rows = rows;
  batch.fields.resize(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    FieldData& data = batch.fields[i];
    data.name = fields[i].name;
    data.dtype = fields[i].dtype;
    data.shape.assign(1, rows);
    data.shape.insert(data.shape.end(), fields[i].shape.begin(), fields[i].shape.end());
    data.bytes.resize(
        static_cast<std::size_t>(element_count(data.shape) * dtype_bytes(data.dtype)));
  }
}

}  // namespace hetu
