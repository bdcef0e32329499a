// Handles standard streams that were closed when the process started. Called by the tool's main()
// and by the Python module.
#pragma once

namespace hetu {

/// Occupies the descriptors of standard streams that are closed. Otherwise a file or socket of this
/// process could get such a number and receive output that is meant for the stream. Using the
/// streams still fails, as it does for a closed stream.
void reserve_standard_streams();

}  // namespace hetu
