// Runs a saved model in a C++ program: job.save("model") in Python, then
//   build/bin/example_predict model 100 in out
// reads 100 rows of each field from in/FIELD.bin, with elements in their memory layout (NumPy:
// array.tofile), and writes out/OUTPUT.bin for each output.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "executor/predict/predictor.h"

int main(int count, char** words) try {
  if (count != 5) return std::fputs("usage: example_predict MODEL ROWS IN OUT\n", stderr), 2;
  const std::string in = words[3], out = words[4];
  hetu::Predictor model(words[1]);

  std::map<std::string, std::vector<char>> bytes;
  std::map<std::string, hetu::ArrayView> fields;
  for (const hetu::ValueId v : model.graph().placeholders) {
    const std::string& name = model.graph().producer(v).name;
    hetu::TensorType type = model.graph().values[v].type;
    type.shape[0] = std::atol(words[2]);
    std::ifstream file(in + "/" + name + ".bin", std::ios::binary);
    bytes[name].assign(std::istreambuf_iterator<char>(file), {});
    hetu::require(std::ssize(bytes[name]) == hetu::tensor_bytes(type, 1),
                  "{}/{}.bin has {} bytes, {} are {}", in, name, bytes[name].size(),
                  hetu::to_string(type), hetu::tensor_bytes(type, 1));
    fields[name] = {type.dtype, type.shape, bytes[name].data()};
  }

  for (const auto& [name, array] : model.predict(fields)) {
    std::ofstream file(out + "/" + name + ".bin", std::ios::binary);
    file.write(reinterpret_cast<const char*>(array.bytes.data()), std::ssize(array.bytes));
    std::printf("%s %s\n", name.c_str(),
                hetu::to_string(hetu::TensorType{array.dtype, array.shape}).c_str());
  }
} catch (const hetu::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return hetu::exit_status(error.code());
}
