#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hetu {

// The streams are opened in the wrong direction, so that reading standard input and writing the
// other two give EBADF.
void reserve_standard_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool is_closed = fcntl(number, F_GETFD) == -1 && errno == EBADF;
    // open() returns the lowest free number. It is this one, because the numbers below it are in
    // use.
    if (is_closed && open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) != number)
      return;
  }
}

}  // namespace hetu
