#include "executor/device/threads.h"

#include <omp.h>

namespace hetu {

int threads() { return omp_get_max_threads(); }

void set_threads(int count) { omp_set_num_threads(count); }

}  // namespace hetu
