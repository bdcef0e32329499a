// Matrix products through oneDNN. This pair of files is the only place that knows oneDNN or its
// version (2.6 and later, 3.x); everything around it sees sizes and pointers.
#pragma once
#include <cstdint>
#include <memory>

namespace hetu::cpu {

/// C[b] = A[b] B[b] (+ bias per column), float32, dense row-major. A is [batch, m, k], or
/// [batch, k, m] if transpose_a; B is [batch, k, n], or [batch, n, k] if transpose_b; bias is [n].
struct MatmulShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
};

/// A primitive made once for one shape and for omp_get_max_threads() of the thread that makes it;
/// the same threads give the same bits. One thread may run it at a time. Copies share the
/// primitive.
class DnnlMatmul {
 public:
  /// Sizes must be positive. Throws Unsupported with oneDNN's message if it has no implementation.
  explicit DnnlMatmul(const MatmulShape& shape);

  /// Bytes that run() needs at `scratch`; oneDNN never allocates scratch of its own.
  std::int64_t scratch_bytes() const;

  /// Name of the implementation that oneDNN chose, e.g. "brg:avx512_core".
  const char* implementation() const;

  /// `bias` is nullptr unless the shape has one. Throws Internal if oneDNN reports a failure.
  void run(const float* a, const float* b, const float* bias, float* c, void* scratch) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hetu::cpu
