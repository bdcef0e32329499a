// A store with its log in a temporary folder, which can be killed and restarted; used by the tests
// of ps/server.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "ps/server/log.h"
#include "tests/temporary_folder.h"

namespace hetu::ps::server {

/// Returns the state of a store as bytes. Two stores with equal states behave alike afterwards.
inline Bytes state_of(Store& store) {
  Bytes all;
  for (const Piece& piece : store.save()) {
    all.insert(all.end(), piece.words.begin(), piece.words.end());
    all.insert(all.end(), piece.values.data, piece.values.data + piece.values.bytes);
  }
  return all;
}

/// A store that logs its changes. Creating another one on the same folder is a restart.
class LoggedStore {
 public:
  LoggedStore(StoreOptions options, LogOptions log, std::int64_t read_at_once = 1)
      : log_(std::move(log)), store_(listening(std::move(options))) {
    while (!log_.recover(store_, read_at_once)) {
    }
    store_.resume(0);
    is_recovered_ = true;
  }

  Store& store() { return store_; }
  Log& log() { return log_; }
  /// Commits the log. Returns the messages that may be sent now.
  std::vector<Store::Outgoing> settle(std::int64_t saved_at_once) {
    log_.commit();
    std::vector<Store::Outgoing> out = store_.take();
    log_.save(store_, saved_at_once);
    return out;
  }

 private:
  StoreOptions listening(StoreOptions options) {
    options.on_change = [this, heard = std::move(options.on_change)](const Change& change) {
      EXPECT_TRUE(is_recovered_) << "a change that is replayed is kept again";
      log_.append(change);
      if (heard) heard(change);
    };
    return options;
  }
  Log log_;
  bool is_recovered_ = false;
  Store store_;
};

}  // namespace hetu::ps::server
